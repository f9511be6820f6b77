package tail

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
	"go.yaml.in/yaml/v3"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsoncompare"
)

// LineAndDiff returns the line of an event, without a newline at the end. For an update, it appends
// a unified diff of the object as YAML:
//
//	15:04:06.000  updated   deployments.apps  shop/cart  v12346  watch
//	--- v12345
//	+++ v12346
//	@@ -9,3 +9,3 @@
//	 spec:
//	-  replicas: 1
//	+  replicas: 2
//	   selector:
//
// Like kubectl diff, the diff omits managedFields. It also omits resourceVersion, which the diff's
// first two lines show.
func (t *Text) LineAndDiff(e Event, c Change) string {
	if event.Type(e.Message.Attribute("type")) != event.Updated || c.Object == nil || c.Present {
		return t.Line(e)
	}
	if c.Previous == nil {
		e.note = "previous state unknown"
		return t.Line(e)
	}
	diff, err := diff(c.Previous, c.Object)
	switch {
	case err != nil:
		e.note = "no diff: " + err.Error()
	case diff == "":
		e.note = "only resourceVersion or managedFields differ"
	}
	var b strings.Builder
	b.WriteString(t.Line(e))
	for n, line := range strings.Split(strings.TrimSuffix(diff, "\n"), "\n") {
		if diff != "" {
			b.WriteByte('\n')
			b.WriteString(t.paint(printable(line), diffColor(n, line)))
		}
	}
	return b.String()
}

// headLines is the number of lines in the head of a diff: "---" and "+++".
const headLines = 2

func diffColor(n int, line string) string {
	switch {
	case n < headLines:
		return bold
	case line[0] == '-':
		return red
	case line[0] == '+':
		return green
	case line[0] == '@':
		return cyan
	}
	return ""
}

// diff returns a unified diff of two objects, or "" if no visible field differs.
func diff(before, after []byte) (string, error) {
	old, oldVersion, err := toYAML(before)
	if err != nil {
		return "", err
	}
	now, nowVersion, err := toYAML(after)
	if err != nil {
		return "", err
	}
	unified, err := udiff.ToUnified(head(oldVersion), head(nowVersion), old, udiff.Lines(old, now), udiff.DefaultContextLines)
	return renumbered(unified), err
}

// hunk matches a hunk header. It captures the parts of the header before and after the first line number
// of the new text, the first line number and the number of lines of the old text, and the number of lines
// of the new text.
var hunk = regexp.MustCompile(`(?m)^(@@ -(\d+)(?:,(\d+))? \+)\d+((?:,(\d+))? @@)$`)

// renumbered corrects the first line number of the new text in each hunk header. go-udiff 0.4.1 does
// not count the equal lines between two edits of a hunk. Neither text is empty, so each hunk has lines
// of both.
func renumbered(unified string) string {
	more := 0 // number of lines that the earlier hunks add
	count := func(s string) int {
		if s == "" {
			return 1
		}
		n, _ := strconv.Atoi(s)
		return n
	}
	return hunk.ReplaceAllStringFunc(unified, func(line string) string {
		part := hunk.FindStringSubmatch(line)
		from, _ := strconv.Atoi(part[2])
		to := from + more
		more += count(part[5]) - count(part[3])
		return part[1] + strconv.Itoa(to) + part[4]
	})
}

var (
	errNoObject = errors.New("its data is not an object")
	errTooDeep  = errors.New("it is nested too deeply")
)

func head(version string) string {
	if version == "" {
		return "no version"
	}
	return show("v" + version)
}

// toYAML formats an object like kubectl, except that it does not break long lines, and keeps multiline
// strings in block style even if they contain tabs. It also returns the object's resourceVersion.
//
// sigs.k8s.io/yaml is unsuitable: it parses JSON as YAML, so it rejects some characters that JSON
// allows, and it rounds numbers.
func toYAML(object []byte) (text, version string, err error) {
	root, err := decode(object)
	if err != nil {
		return "", "", errNoObject
	}
	if jsoncompare.IsDeeper(root, jsoncompare.MaxDepth) {
		return "", "", errTooDeep
	}
	if fields, ok := root.(map[string]any); ok {
		if metadata, ok := fields["metadata"].(map[string]any); ok {
			version, _ = metadata["resourceVersion"].(string)
			delete(metadata, "resourceVersion")
			delete(metadata, "managedFields")
		}
	}
	text, err = encodeYAML(root)
	return text, version, err
}

func encodeYAML(root any) (string, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2) //nolint:mnd // as kubectl
	e.CompactSeqIndent()
	if err := e.Encode(exactNumbers(root)); err != nil {
		return "", fmt.Errorf("write as YAML: %w", err)
	}
	return b.String(), nil
}

// exactNumbers replaces each number with a YAML node that keeps the spelling.
func exactNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = exactNumbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = exactNumbers(v[i])
		}
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}
	}
	return v
}

// decode parses an object into a tree. Numbers keep their spelling.
func decode(object []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	var root any
	if err := d.Decode(&root); err != nil {
		return nil, err
	}
	return root, nil
}

// printable escapes unprintable characters. It keeps tabs, because many ConfigMaps contain them and
// a tab moves only the text after it.
func printable(line string) string {
	plain := func(r rune) bool { return r == '\t' || unicode.IsPrint(r) }
	if utf8.ValidString(line) && strings.IndexFunc(line, func(r rune) bool { return !plain(r) }) < 0 {
		return line
	}
	var b strings.Builder
	for _, r := range line {
		if plain(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

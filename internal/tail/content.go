package tail

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsoncompare"
	"github.com/kuberelay/kuberelay/internal/terminal"
)

// WriteJSON writes objects, read with [Present.Whole], like kubectl get -o json. If single is true,
// objects must have one element, and WriteJSON writes that object alone. Otherwise, it writes a
// List. A truncated object has the annotation [event.TruncatedAnnotation]. The error names the
// objects that can't be written. A List contains the others.
func WriteJSON(w io.Writer, objects []Object, single bool) error {
	root, unshown := content(objects, single)
	if root == nil {
		return unshown
	}
	text, err := event.EncodeJSON(root)
	if err != nil {
		return fmt.Errorf("write as JSON: %w", err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, terminal.Escape(text), "", "    "); err != nil {
		return fmt.Errorf("write as JSON: %w", err)
	}
	indented.WriteByte('\n')
	if _, err = w.Write(indented.Bytes()); err != nil {
		return err
	}
	return unshown
}

// WriteYAML writes the same content as [WriteJSON], as YAML.
func WriteYAML(w io.Writer, objects []Object, single bool) error {
	root, unshown := content(objects, single)
	if root == nil {
		return unshown
	}
	quoted, err := quoteUnprintable(root)
	if err != nil {
		return err
	}
	text, err := encodeYAML(quoted)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		if _, err := fmt.Fprintln(w, printable(strings.TrimSuffix(line, "\n"))); err != nil {
			return err
		}
	}
	return unshown
}

// content returns the object, or a List of the objects, as a tree. Numbers keep their spelling. The
// error names the objects that the tree lacks. If a single object can't be written, there is no
// tree.
func content(objects []Object, single bool) (any, error) {
	items, unshown := make([]any, 0, len(objects)), []error(nil)
	for _, o := range objects {
		root, err := o.tree()
		if err != nil {
			unshown = append(unshown, fmt.Errorf("show %s: %w", o.Key, err))
			continue
		}
		items = append(items, root)
	}
	err := errors.Join(unshown...)
	switch {
	case single && err != nil:
		return nil, err
	case single:
		return items[0], nil
	}
	return map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items}, err
}

func (o Object) tree() (any, error) {
	body, err := o.body.JSON()
	if err != nil {
		return nil, err
	}
	root, err := decode(body)
	switch {
	case err != nil:
		return nil, err
	case jsoncompare.IsDeeper(root, jsoncompare.MaxDepth):
		return nil, errTooDeep
	case o.Truncated:
		annotate(root)
	}
	return root, nil
}

func annotate(root any) {
	object, _ := root.(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations[event.TruncatedAnnotation] = "true"
	if metadata != nil {
		metadata["annotations"] = annotations
	}
}

// quoteUnprintable double-quotes strings that have unprintable characters, because YAML has escapes
// only in double-quoted strings. Member names can be such strings too.
func quoteUnprintable(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			if v[name], err = quoteUnprintable(v[name]); err != nil {
				return nil, err
			}
		}
		if slices.ContainsFunc(slices.Collect(maps.Keys(v)), isUnprintable) {
			return quoteNames(v)
		}
	case []any:
		for i := range v {
			if v[i], err = quoteUnprintable(v[i]); err != nil {
				return nil, err
			}
		}
	case string:
		if isUnprintable(v) {
			return quotedNode(v), nil
		}
	}
	return v, nil
}

func isUnprintable(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
}

func quotedNode(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: s}
}

// quoteNames returns a mapping with double-quoted names.
func quoteNames(members map[string]any) (*yaml.Node, error) {
	mapping := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := &yaml.Node{}
		if err := value.Encode(exactNumbers(members[name])); err != nil {
			return nil, fmt.Errorf("write the field %q as YAML: %w", name, err)
		}
		mapping.Content = append(mapping.Content, quotedNode(name), value)
	}
	return mapping, nil
}

package tail

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kuberelay/kuberelay/internal/terminal"

	"go.yaml.in/yaml/v3"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsoncompare"
)

// WriteJSON writes objects, read with [Present.Whole], like kubectl get -o json. If single is true,
// objects must have one element, and WriteJSON writes that object alone. Otherwise it writes a List.
// A truncated object has the annotation [event.TruncatedAnnotation].
func WriteJSON(w io.Writer, objects []Object, single bool) error {
	root, err := content(objects, single)
	if err != nil {
		return err
	}
	text, err := encode(root)
	if err != nil {
		return fmt.Errorf("write as JSON: %w", err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, terminal.Escape(text), "", "    "); err != nil {
		return fmt.Errorf("write as JSON: %w", err)
	}
	indented.WriteByte('\n')
	_, err = w.Write(indented.Bytes())
	return err
}

// WriteYAML writes the same content as [WriteJSON], as YAML.
func WriteYAML(w io.Writer, objects []Object, single bool) error {
	root, err := content(objects, single)
	if err != nil {
		return err
	}
	text, err := encodeYAML(quoteUnprintable(root))
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		if _, err := fmt.Fprintln(w, printable(strings.TrimSuffix(line, "\n"))); err != nil {
			return err
		}
	}
	return nil
}

// content returns the object, or a List of the objects, as a tree. Numbers keep their spelling.
func content(objects []Object, single bool) (any, error) {
	items := make([]any, 0, len(objects))
	for _, o := range objects {
		body, err := o.body.JSON()
		if err != nil {
			return nil, fmt.Errorf("show %s: %w", o.Key, err)
		}
		root, err := decode(body)
		if err == nil && jsoncompare.IsDeeper(root, jsoncompare.MaxDepth) {
			err = errTooDeep
		}
		if err != nil {
			return nil, fmt.Errorf("show %s: %w", o.Key, err)
		}
		if o.Truncated {
			annotate(root)
		}
		items = append(items, root)
	}
	if single {
		return items[0], nil
	}
	return map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items}, nil
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
// only in double-quoted strings.
func quoteUnprintable(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = quoteUnprintable(v[name])
		}
	case []any:
		for i := range v {
			v[i] = quoteUnprintable(v[i])
		}
	case string:
		if !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }) {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: v}
		}
	}
	return v
}

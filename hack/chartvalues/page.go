package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/kuberelay/kuberelay/hack/markdown"
)

//go:embed README.md.tmpl
var page string

// writePage writes the README of the chart. The text is in README.md.tmpl.
func writePage(w io.Writer, chart []value) error {
	t, err := template.New("README.md").Funcs(template.FuncMap{
		"rows": func(prefix string) (string, error) { return table(chart, prefix) },
	}).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, nil)
}

// table returns a Markdown table of the values in the section that prefix names. If prefix begins with
// "!", the table has the values of all other sections.
func table(chart []value, prefix string) (string, error) {
	var b strings.Builder
	b.WriteString("| Value | Type | Default | Meaning |\n|---|---|---|---|\n")
	without, negated := strings.CutPrefix(prefix, "!")
	err := each(chart, "", func(path string, v value) error {
		inside := strings.HasPrefix(path, without+".") || path == without
		if inside == negated {
			return nil
		}
		preset, err := json.Marshal(v.preset)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", path, v.kind, preset, markdown.Cell(cmp.Or(v.brief, v.description)))
		return nil
	})
	return strings.TrimSuffix(b.String(), "\n"), err
}

// each calls do for every leaf. It treats a value that names a file as one leaf, although that value has
// several parts.
func each(values []value, prefix string, do func(path string, v value) error) error {
	for _, v := range values {
		path := prefix + v.name
		switch {
		case v.values != nil && v.kind != "": // a file
			preset := object{}
			for _, of := range v.values {
				preset[of.name] = of.preset
			}
			v.preset = preset
		case v.values != nil:
			if err := each(v.values, path+".", do); err != nil {
				return err
			}
			continue
		}
		if err := do(path, v); err != nil {
			return err
		}
	}
	return nil
}

// width is the maximum length of a comment line.
const width = 100

// writeYAML writes the values with their descriptions as comments.
func writeYAML(w io.Writer, chart []value) error {
	fmt.Fprintln(w, `# Made by "make generate". Do not edit.`)
	for _, v := range chart {
		fmt.Fprintln(w)
		if err := writeValue(w, v, ""); err != nil {
			return err
		}
	}
	return nil
}

func writeValue(w io.Writer, v value, indent string) error {
	mark := "# -- "
	for _, line := range wrap(v.description, width-len(indent)) {
		fmt.Fprintf(w, "%s%s%s\n", indent, mark, line)
		mark = "# "
	}
	if v.values != nil {
		fmt.Fprintf(w, "%s%s:\n", indent, v.name)
		for _, of := range v.values {
			if v.kind != "" { // a file; its values need no description
				fmt.Fprintf(w, "%s  %s: %q\n", indent, of.name, of.preset)
				continue
			}
			if err := writeValue(w, of, indent+"  "); err != nil {
				return err
			}
		}
		return nil
	}
	content, err := yaml.Marshal(map[string]any{v.name: v.preset})
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(content)) {
		fmt.Fprintf(w, "%s%s", indent, line)
	}
	return nil
}

func wrap(s string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(s) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

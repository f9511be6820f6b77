// Configdocs prints docs/configuration.md. The variables come from package config, and the text around
// them comes from a template.
package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"strings"
	"text/template"

	"github.com/kuberelay/kuberelay/internal/config"
)

//go:embed configuration.md.tmpl
var page string

func main() {
	if err := write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "configdocs:", err)
		os.Exit(1)
	}
}

type group struct {
	Title, Note string
	Fields      []config.Field
}

func write(w io.Writer) error {
	t, err := template.New("configuration.md").Funcs(template.FuncMap{
		"cell":        cell,
		"default":     defaultCell,
		"unlessNamed": config.UnlessNamed,
	}).Parse(page)
	if err != nil {
		return err
	}
	var groups []group
	for _, f := range config.Fields() {
		if len(groups) == 0 || groups[len(groups)-1].Title != f.Group {
			groups = append(groups, group{Title: f.Group, Note: f.Note})
		}
		last := &groups[len(groups)-1]
		last.Fields = append(last.Fields, f)
	}
	return t.Execute(w, groups)
}

// cell escapes the characters that Markdown interprets as a column separator or as emphasis.
func cell(s string) string { return strings.NewReplacer("|", `\|`, "*", `\*`).Replace(s) }

func defaultCell(f config.Field) string {
	switch {
	case f.Required:
		return "required"
	case f.Default != "":
		return "`" + f.Default + "`"
	default:
		return cell(f.Unset)
	}
}

// Configdocs prints docs/configuration.md. The variables come from package config, and the text around
// them comes from a template.
package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"text/template"

	"github.com/kuberelay/kuberelay/hack/markdown"
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
		"cell":        markdown.Cell,
		"default":     defaultCell,
		"link":        link,
		"unlessNamed": unlessNamed,
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

// unlessNamed returns the resources that no wildcard selects, as a list for a sentence.
func unlessNamed() string {
	names := config.UnlessNamed()
	for i, name := range names {
		names[i] = "`" + name + "`"
	}
	return config.Alternatives(names)
}

var docsPath = regexp.MustCompile(`docs/([a-z-]+\.md)`)

// link replaces the path of a page with a link that shows the title of the page.
func link(s string) (string, error) {
	for _, m := range docsPath.FindAllStringSubmatch(s, -1) {
		content, err := os.ReadFile(m[0])
		if err != nil {
			return "", err
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(content), "# "), "\n")
		s = strings.ReplaceAll(s, m[0], "["+title+"]("+m[1]+")")
	}
	return s, nil
}

func defaultCell(f config.Field) string {
	switch {
	case f.Required:
		return "required"
	case f.Default != "":
		return "`" + f.Default + "`"
	default:
		return markdown.Cell(f.Unset)
	}
}

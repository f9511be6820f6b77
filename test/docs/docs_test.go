// Package docs tests the documentation: its links, its tables, its commands, its quotation marks, and
// whether it describes every log message that asks for action.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/status"
)

const root = "../.."

// pages returns the Markdown files by their path from the root of the project.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "charts/*/*.md", ".github/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			rel, err := filepath.Rel(root, name)
			if err != nil {
				t.Fatal(err)
			}
			all[rel] = string(text)
		}
	}
	if len(all) < 20 {
		t.Fatalf("found %d pages", len(all))
	}
	return all
}

var (
	fence   = regexp.MustCompile("(?s)```.*?\n```")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	markup  = regexp.MustCompile("`|\\[([^\\]]*)\\]\\([^)]*\\)")
	slugged = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// anchors returns the anchors that GitHub generates for the headings of a page.
func anchors(page string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := slugged.ReplaceAllString(strings.ToLower(markup.ReplaceAllString(m[1], "$1")), "")
		all = append(all, strings.ReplaceAll(text, " ", "-"))
	}
	return all
}

func TestLinks(t *testing.T) {
	all := pages(t)
	for name, page := range all {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if path != "" {
				target = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			} else if page, ok := all[target]; ok && anchor != "" && !slices.Contains(anchors(page), anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", name, m[1], target)
			}
		}
	}
}

// TestTables verifies that each row of a table has a line of its own, and as many cells as the header.
func TestTables(t *testing.T) {
	rule := regexp.MustCompile(`^ *\|(?: *:?-+:? *\|)+$`)
	cells := func(row string) int { return strings.Count(strings.ReplaceAll(row, `\|`, ""), "|") - 1 }
	n := 0
	for name, page := range pages(t) {
		lines := strings.Split(fence.ReplaceAllString(page, ""), "\n")
		for i, line := range lines {
			if !rule.MatchString(line) || i == 0 {
				continue
			}
			n++
			end := i + 1
			for end < len(lines) && strings.HasPrefix(strings.TrimSpace(lines[end]), "|") {
				end++
			}
			for _, row := range lines[i-1 : end] {
				if cells(row) != cells(line) || !strings.HasSuffix(row, "|") {
					t.Errorf("%s has a row that is not one line of %d cells: %.80q", name, cells(line), row)
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("found %d tables", n)
	}
}

// TestStraightQuotes guards against typographic quotation marks, which a shell doesn't understand
// in a copied command.
func TestStraightQuotes(t *testing.T) {
	for name, page := range pages(t) {
		if i := strings.IndexAny(page, "«»“”‘’"); i >= 0 {
			t.Errorf("%s has a quotation mark that is not straight: %.40q", name, page[i:])
		}
	}
}

// TestTroubleshootingNamesEveryMessage verifies that docs/troubleshooting.md has a heading for each
// message at level warn or error, and no heading for a message that the code doesn't contain.
func TestTroubleshootingNamesEveryMessage(t *testing.T) {
	page := pages(t)["docs/troubleshooting.md"]
	var headings []string
	for _, m := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(page, -1) {
		headings = append(headings, m[1])
	}
	logged, literals := messages(t)
	literals = append(literals, alerts(t)...)
	if len(logged) < 40 || len(headings) < 40 {
		t.Fatalf("found %d messages in the code and %d headings", len(logged), len(headings))
	}
	for _, m := range logged {
		if !slices.Contains(headings, m) {
			t.Errorf("docs/troubleshooting.md has no heading %q", "### "+m)
		}
	}
	for _, h := range headings {
		if !slices.ContainsFunc(literals, func(s string) bool { return strings.Contains(s, h) }) {
			t.Errorf("docs/troubleshooting.md has the heading %q, and the code has no such text", h)
		}
	}
}

// alerts returns the names of the chart's alerts.
func alerts(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "charts", "kuberelay", "templates", "_alerts.tpl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^- alert: (\w+)$`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	return names
}

// TestFindingsLinkToHeadings verifies that every finding of forwarder status links to a heading in
// docs/troubleshooting.md.
func TestFindingsLinkToHeadings(t *testing.T) {
	headings := anchors(pages(t)["docs/troubleshooting.md"])
	for _, c := range status.Causes() {
		if !slices.Contains(headings, c.Anchor) {
			t.Errorf("%s links to #%s, and docs/troubleshooting.md has no such heading", c.Reason, c.Anchor)
		}
	}
}

// messages returns the constant messages that the product logs at level warn or error, and every
// string literal of the product.
func messages(t *testing.T) (logged, literals []string) {
	t.Helper()
	at := map[string]int{"Warn": 0, "Error": 0, "WarnContext": 1, "ErrorContext": 1, "Log": 2}
	visit := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if s, ok := text(n); ok {
				literals = append(literals, s)
			}
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				break
			}
			i, ok := at[f.Sel.Name]
			if receiver, is := f.X.(*ast.Ident); !ok || len(n.Args) <= i || is && (receiver.Name == "t" || receiver.Name == "tb") {
				break // a test's Error, not the logger's
			}
			if s, ok := text(n.Args[i]); ok {
				logged = append(logged, s)
			}
		}
		return true
	}
	for _, dir := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err == nil {
				ast.Inspect(file, visit)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return logged, literals
}

func text(n ast.Node) (string, bool) {
	literal, ok := n.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(literal.Value)
	return s, err == nil
}

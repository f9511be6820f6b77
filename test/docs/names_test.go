package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFilesThatDecideByTheSink verifies that the section about a new sink names exactly the files
// whose code depends on the configured sink.
func TestFilesThatDecideByTheSink(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### A sink\n")
	section, _, _ = strings.Cut(section, "\n### ")
	rows := regexp.MustCompile(`(?m)^ +\| .*$`).FindAllString(section, -1)
	var named, deciding []string
	for _, m := range regexp.MustCompile("`([\\w/]+\\.go)`").FindAllStringSubmatch(strings.Join(rows, "\n"), -1) {
		named = append(named, m[1])
	}
	decision := regexp.MustCompile(`\b(?:config\.)?Sink(?:NATS|Kafka|Stdout)\b|switch \w+\.Sink\b`)
	for _, top := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if name, _ := filepath.Rel(root, path); err == nil && name != "internal/config/config.go" && decision.Match(text) {
				deciding = append(deciding, filepath.ToSlash(name))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(named)
	slices.Sort(deciding)
	if !slices.Equal(named, deciding) || len(deciding) == 0 {
		t.Errorf("docs/architecture.md names\n%q, and these files decide by the sink:\n%q", named, deciding)
	}
}

// TestNamedTestsExist verifies that every test and every benchmark that a page names exists.
func TestNamedTestsExist(t *testing.T) {
	packages, n := tests(t), 0
	for name, page := range pages(t) {
		for _, m := range regexp.MustCompile("`((?:Test|Benchmark)[A-Z]\\w*)[`/]").FindAllStringSubmatch(page, -1) {
			if n++; packages[m[1]] == nil {
				t.Errorf("%s names %s, and there is no such test", name, m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("found %d names of tests", n)
	}
}

// tests returns the directories that contain a test or a benchmark, by its name.
func tests(t *testing.T) map[string][]string {
	t.Helper()
	directories := map[string][]string{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+|Benchmark\w+)\([tb] \*testing\.[TB]\)`)
	for _, top := range []string{"cmd", "hack", "internal", "test"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			directory, _ := filepath.Rel(root, filepath.Dir(path))
			for _, m := range declaration.FindAllStringSubmatch(string(source), -1) {
				directories[m[1]] = append(directories[m[1]], directory)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return directories
}

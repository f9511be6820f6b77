package redaction

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPublicIsDocumented verifies that docs/events.md lists exactly the labels and annotations of a
// Secret that stay readable. Each name must have the domain of a project as its prefix, because
// anyone can use a name without a prefix.
func TestPublicIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| label or annotation |")
	table, _, _ = strings.Cut(table, "\n## ")
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(table, -1) {
		documented[m[1]] = true
		if !isPublic[m[1]] {
			t.Errorf("%s is hashed", m[1])
		}
	}
	for name := range isPublic {
		if !documented[name] {
			t.Errorf("%s is not documented", name)
		}
		if !strings.Contains(name, "/") {
			t.Errorf("%s has no prefix", name)
		}
	}
}

package status

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocumentation verifies that docs/status.md contains the output of the golden files and every
// reason.
func TestDocumentation(t *testing.T) {
	b, err := os.ReadFile("../../docs/status.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, golden := range []string{"ok.table", "critical.table", "critical.json"} {
		want, err := os.ReadFile("testdata/" + golden)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page, string(want)+"```\n") {
			t.Errorf("docs/status.md does not have testdata/%s", golden)
		}
	}
	for _, c := range Causes() {
		if row := fmt.Sprintf("| %#q | [%s](troubleshooting.md#%s) |", c.Reason, c.Meaning, c.Anchor); !strings.Contains(page, row) {
			t.Errorf("docs/status.md does not have the row %s", row)
		}
	}
}

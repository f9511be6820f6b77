package trace

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestDocumentation verifies that docs/trace.md contains the output of the golden files, every
// reason and every field.
func TestDocumentation(t *testing.T) {
	b, err := os.ReadFile("../../docs/trace.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, golden := range []string{"ok.table", "waiting.table", "waiting.json"} {
		want, err := os.ReadFile("testdata/" + golden)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page, string(want)+"```\n") {
			t.Errorf("docs/trace.md does not have testdata/%s", golden)
		}
	}
	for _, c := range Causes() {
		if row := fmt.Sprintf("| %#q | %d | %s |", c.Reason, c.Code, c.Meaning); !strings.Contains(page, row) {
			t.Errorf("docs/trace.md does not have the row %s", row)
		}
	}
	_, fields, _ := strings.Cut(page, "| field |")
	for _, part := range []any{Document{}, Verdict{}, APIServer{}, Selection{}, Forwarder{}, Watch{}, Entry{}, PublishError{}, Bus{}, Consumer{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(part)) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !strings.Contains(fields, "`"+name+"`") && !strings.Contains(fields, "`forwarder."+name+"`") {
				t.Errorf("docs/trace.md does not explain the field %s of %T", name, part)
			}
		}
	}
}

package ledger

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestDocumented verifies that docs/architecture.md names every method that changes a record.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	reads := map[string]bool{"Describe": true}
	for _, of := range []reflect.Type{reflect.TypeFor[*Ledger](), reflect.TypeFor[*Term]()} {
		for m := range of.NumMethod() {
			f := of.Method(m)
			isStep := f.Type.NumIn() > 1 && f.Type.In(1) == reflect.TypeFor[event.Key]() && (f.Type.NumOut() == 0 || f.Name == "Replace")
			if isStep && !reads[f.Name] && !strings.Contains(string(page), "`"+f.Name+"`") {
				t.Errorf("docs/architecture.md does not name %s of %s", f.Name, of)
			}
		}
	}
}

package verify

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// shared lists the packages of the project that verify may import, and the names that it may use
// from each package: core types, and the code that opens a bus and delivers raw messages. None of
// it parses or writes a subject, a key, an event or its data. nil allows every name.
var shared = map[string][]string{
	"internal/event":        {"Key", "Resource"},
	"internal/event/decode": {"Shape"}, // the caller says which parts of an object are sent
	"internal/publish": {
		"Delivery", "ErrLost", "ErrMissing", "ErrUnreachable", "FromStart", "Log", "MaxAway", "Offset", "Partition", "SubscribeOptions", // Offset and Partition split a position, which is not on the bus
	},
	"internal/publish/nats/reader":  {"Bus", "Connect", "ErrMisconfigured", "ErrStreamMissing", "Options", "Raw"},
	"internal/publish/kafka/reader": {"Bus", "ErrChanged", "ErrMisconfigured", "Open", "Options", "Record", "Scan"},
	"internal/longwork":             {"Counter"},           // counts the work that is done
	"internal/selector":             {"Parse", "Selector"}, // parses the configuration
	"internal/terminal":             {"WriteJSON"},         // prints reports
	"internal/verify/normal":        nil,
	"internal/verify/replica":       nil,
	"internal/verify/report":        nil,
	"internal/verify/wire":          nil,
}

// parsing lists methods of shared types that parse events.
var parsing = []string{"At", "Last", "Lasts", "Load", "Next", "Path", "Subscribe"}

const module = "github.com/kuberelay/kuberelay/"

// TestNoParserIsShared verifies that verify shares no parser with the forwarder. Otherwise verify
// could not find a mistake that the forwarder makes both when it writes and when it reads.
func TestNoParserIsShared(t *testing.T) {
	for _, dir := range []string{".", "normal", "replica", "report", "wire"} {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if name := path.Join(dir, f.Name()); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
				lookForParsers(t, name, dir == "wire")
			}
		}
	}
}

func lookForParsers(t *testing.T, name string, nothing bool) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{} // the allowed names of each package, by the package's name in the file
	for _, i := range file.Imports {
		imported, _ := strconv.Unquote(i.Path.Value) // cannot fail, because the parser checked it
		ours, ok := strings.CutPrefix(imported, module)
		if !ok {
			continue
		}
		allowed, known := shared[ours]
		if nothing || !known || i.Name != nil && (i.Name.Name == "." || i.Name.Name == "_") {
			t.Errorf("%s imports %s, which this test does not list as shared with the forwarder", name, imported)
		}
		local := path.Base(ours)
		if i.Name != nil { // the packages of both readers are called reader, so a file that needs both renames one
			local = i.Name.Name
		}
		if allowed != nil {
			names[local] = allowed
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := s.X.(*ast.Ident)
		if !ok || x.Obj != nil { // not a package
			if slices.Contains(parsing, s.Sel.Name) {
				t.Errorf("%s: %s may read events as the forwarder does", fset.Position(n.Pos()), s.Sel.Name)
			}
			return true
		}
		if allowed, ours := names[x.Name]; ours && !slices.Contains(allowed, s.Sel.Name) {
			t.Errorf("%s: verify shares %s.%s with the forwarder", fset.Position(n.Pos()), x.Name, s.Sel.Name)
		}
		return true
	})
}

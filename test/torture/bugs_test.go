package torture

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/harness"
)

// failpoints is the build tag of the forwarders.
const failpoints = "failpoints"

// patchOf returns the file of a planted bug. A planted bug is a patch in the directory bugs, which the
// suite applies to the code when it builds a forwarder. To write a patch, or to update it after a
// change of the code, put the bug into the code, and then run:
//
//	git diff -U1 internal cmd >test/torture/bugs/name.patch && git checkout internal cmd
//
// With only one line of context, the patch still applies after its lines move. The first line of the
// file describes the bug.
func patchOf(bug string) string { return filepath.Join("bugs", bug+".patch") }

// plantedBugs returns the names of all planted bugs.
func plantedBugs(t *testing.T) []string {
	t.Helper()
	patches, err := filepath.Glob(patchOf("*"))
	if err != nil {
		t.Fatal(err)
	}
	for n, p := range patches {
		patches[n] = strings.TrimSuffix(filepath.Base(p), ".patch")
	}
	return patches
}

// planted reports whether the forwarders have a bug.
func (w *world) planted() bool { return w.bug != "" }

// plant builds the forwarder with a bug in dir.
func plant(ctx context.Context, bug, dir string) (file string, err error) {
	overlay, err := harness.Patch(ctx, patchOf(bug), dir)
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "forwarder")
	return file, harness.BuildWith(ctx, overlay, file, failpoints)
}

// TestEveryPatchApplies_Slow verifies that the patch of every planted bug applies and compiles.
// TestPlantedBugs_Slow would find a stale patch much later.
func TestEveryPatchApplies_Slow(t *testing.T) {
	for _, bug := range plantedBugs(t) {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			overlay, err := harness.Patch(t.Context(), patchOf(bug), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := harness.CompileWith(t.Context(), overlay, failpoints); err != nil {
				t.Error(err)
			}
		})
	}
}

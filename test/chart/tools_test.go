package chart

import (
	"path/filepath"
	"testing"
)

// TestLint: helm lint has nothing to say against the chart with any of the values in ci/.
func TestLint(t *testing.T) {
	files, err := filepath.Glob(chart + "/ci/*-values.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of values in ci/: %v", len(files), err)
	}
	for _, file := range files {
		if out, stderr, err := run(t.Context(), "", tool(t, "helm"), "lint", "--strict", "--values", file, chart); err != nil {
			t.Errorf("%s: %v\n%s%s", file, err, out, stderr)
		}
	}
}

// TestUnits runs the suites in charts/kuberelay/tests.
func TestUnits(t *testing.T) {
	if out, stderr, err := run(t.Context(), "", tool(t, "helm-unittest"), "--strict", chart); err != nil {
		t.Errorf("%v\n%s%s", err, out, stderr)
	}
}

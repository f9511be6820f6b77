package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestImports keeps every type of the Kubernetes API out of the binary: they are a third
// of its size, cannot be left out by the linker once a scheme has them, and came in by
// one import of an import. See internal/clientgo.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	typed := []string{
		"k8s.io/api/apidiscovery/v2", "k8s.io/api/authorization/v1", "k8s.io/api/coordination/v1",
		"k8s.io/api/authentication/v1", "k8s.io/api/core/v1", // by the functions of expressions, in no scheme: the linker leaves them out
	}
	for p := range strings.FieldsSeq(string(out)) {
		all := strings.HasPrefix(p+"/", "k8s.io/client-go/kubernetes/") || strings.HasPrefix(p, "k8s.io/client-go/informers")
		if all || strings.HasPrefix(p, "k8s.io/api/") && !slices.Contains(typed, p) {
			t.Errorf("the forwarder imports %s; «go mod why» does not tell by what, «go list -deps -f '{{.ImportPath}}: {{.Imports}}' ./cmd/forwarder» does", p)
		}
	}
}

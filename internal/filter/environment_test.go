package filter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// TestFunctionsAreThoseOfKubernetes verifies a promise of the documentation: an expression can use
// the same functions as in the Kubernetes version of this project's libraries, except the
// authorizer.
func TestFunctionsAreThoseOfKubernetes(t *testing.T) {
	kubernetes, err := environment.MustBaseEnvSet(version.MajorMinor(1, 37)).Env(environment.NewExpressions)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := newEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for name, f := range kubernetes.Functions() {
		for _, o := range f.OverloadDecls() {
			if !strings.Contains(fmt.Sprint(o.ArgTypes(), o.ResultType()), "kubernetes.authorization.") {
				want[name+" "+o.ID()] = true
			}
		}
	}
	got := map[string]bool{}
	for name, f := range ours.Functions() {
		for _, o := range f.OverloadDecls() {
			got[name+" "+o.ID()] = true
		}
	}
	if len(want) < 100 {
		t.Fatalf("Kubernetes has only %d", len(want))
	}
	for _, o := range slices.Sorted(maps.Keys(want)) {
		if !got[o] {
			t.Errorf("missing: %s", o)
		}
	}
	for _, o := range slices.Sorted(maps.Keys(got)) {
		if !want[o] {
			t.Errorf("not Kubernetes': %s", o)
		}
	}
}

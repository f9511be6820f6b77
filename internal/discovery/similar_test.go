package discovery

import (
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/discoverytest"
)

func TestSimilar(t *testing.T) {
	c := mustDiscover(t, discoverytest.Cluster())
	c.Compact() // as the informers do
	for selector, want := range map[string]string{
		"deploymnts": "deployments.apps", "Deploymnt": "deployments.apps", "deploymnts.apps": "deployments.apps",
		"podz": "pods", "Pds": "pods", "nothingofthekind": "", "*.example.org": "",
	} {
		if got := c.Similar(selector); got != want {
			t.Errorf("%s: got %q, want %q", selector, got, want)
		}
	}
	if got := (&Catalog{}).Similar("pods"); got != "" {
		t.Errorf("in an empty cluster: got %q, want none", got)
	}
}

package fleet

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// TestLeaseName verifies that every cluster has its own lease, under a name that is valid for a
// lease.
func TestLeaseName(t *testing.T) {
	seen := map[string]string{}
	for _, cluster := range []string{"prod", "Prod", "prod_eu", "prod-eu", "PROD_EU", "team.prod"} {
		name := leaseName("kuberelay", cluster)
		if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
			t.Errorf("%s: %s: %v", cluster, name, wrong)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s have the lease %s", cluster, other, name)
		}
		seen[name] = cluster
	}
	if got, want := leaseName("kr-kuberelay", "Mgmt_EU.1"), "kr-kuberelay-mgmt-eu-1-959b274a"; got != want { // the chart computes the same name
		t.Errorf("got %s, want %s", got, want)
	}
	if got := leaseName("kuberelay", "prod"); got != "kuberelay-prod" {
		t.Errorf("got %s", got)
	}
}

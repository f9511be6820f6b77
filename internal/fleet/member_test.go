package fleet

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Every cluster has a lease of its own, under a name that a lease can have.
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
	if got, want := leaseName("kr-kuberelay", "Mgmt_EU.1"), "kr-kuberelay-mgmt-eu-1-959b274a"; got != want { // as the chart does
		t.Errorf("got %s, want %s", got, want)
	}
	if got := leaseName("kuberelay", "prod"); got != "kuberelay-prod" {
		t.Errorf("got %s", got)
	}
}

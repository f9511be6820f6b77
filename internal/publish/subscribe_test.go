package publish

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
)

// TestDeliveryObject verifies that a delivery names its object, although a record key with dots can
// also be a valid subject. The prefix of that subject is everything up to the first dot.
func TestDeliveryObject(t *testing.T) {
	for _, k := range []event.Key{
		{Group: "apps", Resource: "deployments", Namespace: "default", Name: "web"},
		{Resource: "configmaps", Namespace: "default", Name: "a.other.core.configmaps.default.b"},
		{Group: "apps", Resource: "deployments", Namespace: "default", Name: "a.b.c.d.e.f"},
	} {
		for _, of := range []string{event.PartitionKey("prod", k), subject.Object("kuberelay", "prod", k)} {
			cluster, got, ok := Delivery{Subject: of}.Object()
			if cluster != "prod" || got != k || !ok {
				t.Errorf("%s: got %+v of cluster %q, %t", of, got, cluster, ok)
			}
		}
	}
	gr := event.Key{Resource: "pods"}.GroupResource()
	for _, of := range []string{
		event.MarkerPartitionKey("prod", gr), event.ResolvedPartitionKey("prod", gr), event.ClaimPartitionKey("prod"),
		subject.Marker("kuberelay", "prod", gr), subject.Claim("kuberelay", "prod"), "", "x",
	} {
		if cluster, k, ok := (Delivery{Subject: of}).Object(); ok {
			t.Errorf("%q is no object, got %+v of cluster %q", of, k, cluster)
		}
	}
}

package event

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestParseMarkerPartitionKey(t *testing.T) {
	for s, want := range map[string]Key{
		MarkerPartitionKey("c/1", schema.GroupResource{Resource: "pods"}):                     {Resource: "pods"},
		MarkerPartitionKey("c", schema.GroupResource{Group: "apps", Resource: "deployments"}): {Group: "apps", Resource: "deployments"},
		MarkerPartitionKey("c", schema.GroupResource{Group: "core", Resource: "a/b"}):         {Group: "core", Resource: "a/b"},
		WriterPartitionKey("c", "kuberelay", 12):                                              {},
		WriterPartitionKey("c", "a/b", 0):                                                     {},
		ClaimPartitionKey("c/1"):                                                              {},
	} {
		cluster, got, err := ParseMarkerPartitionKey(s)
		if err != nil || got != want || cluster == "" || cluster[0] != 'c' {
			t.Errorf("%s: got %q, %+v, %v, want %+v", s, cluster, got, err, want)
		}
	}
	for name, s := range map[string]string{
		"empty":            "",
		"an object's":      PartitionKey("c", Key{Resource: "pods", Namespace: "a", Name: "b"}),
		"other control":    "c/_control/topic/_/kuberelay",
		"other claim":      "c/_control/cluster/_/lost",
		"no partition":     "c/_control/writer/kuberelay/x",
		"sign":             "c/_control/writer/kuberelay/+1",
		"needless zero":    "c/_control/writer/kuberelay/01",
		"needless escape":  "c/_control/snapshot/core/%41",
		"too few segments": "c/_control/snapshot/pods",
	} {
		t.Run(name, func(t *testing.T) {
			if cluster, k, err := ParseMarkerPartitionKey(s); err == nil {
				t.Errorf("%q: got %q, %+v", s, cluster, k)
			}
		})
	}
}

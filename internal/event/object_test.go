package event

import "testing"

func TestDeepCopyObject(t *testing.T) {
	o := change(pods, "default", "web-0", nil).Object
	c := o.DeepCopyObject().(*Object)
	if c == o || !equalObjects(*o, *c) {
		t.Fatalf("copy %+v, want %+v", c, o)
	}
}

// TestObjectMetadataForClientGo verifies the fields by which client-go's indexers and its namespace
// index identify an object.
func TestObjectMetadataForClientGo(t *testing.T) {
	o := change(pods, "default", "web-0", nil).Object
	m := o.GetObjectMeta()
	if m.GetName() != "web-0" || m.GetNamespace() != "default" || m.GetUID() != "6f1b" || m.GetResourceVersion() != "12345" {
		t.Errorf("GetObjectMeta = %+v", m)
	}
	if got := o.GetObjectKind().GroupVersionKind().String(); got != "/v1, Kind=Pod" {
		t.Errorf("GetObjectKind = %s", got)
	}
}

func TestResourceOf(t *testing.T) {
	key := deployments.Key("default", "web")
	if got := ResourceOf(key, change(deployments, "default", "web", nil).Object); got != deployments {
		t.Errorf("ResourceOf = %+v, want %+v", got, deployments)
	}
	if got := ResourceOf(nodes.Key("", "a"), change(nodes, "", "a", nil).Object); got != nodes {
		t.Errorf("ResourceOf = %+v, want %+v", got, nodes)
	}
}

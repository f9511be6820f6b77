package verify

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuberelay/kuberelay/internal/event"
)

func labelSelector(t *testing.T, s string) labels.Selector {
	t.Helper()
	l, err := labels.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestFollowed verifies that an object of an unselected resource belongs on the bus only if a
// selected object refers to it, directly or through other objects.
func TestFollowed(t *testing.T) {
	w := newWorld(t)
	accounts := event.Resource{Version: "v1", Resource: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true}
	own := func(u, owner *unstructured.Unstructured) {
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}})
	}
	top := w.create(accounts, "top", nil)
	middle := w.create(accounts, "middle", nil)
	middle = w.update(accounts, middle, func(u *unstructured.Unstructured) { own(u, top) })
	bottom := w.create(configMaps, "bottom", nil)
	bottom = w.update(configMaps, bottom, func(u *unstructured.Unstructured) { own(u, middle) })
	w.publish(event.Created, configMaps, bottom)
	w.publish(event.Created, accounts, w.create(accounts, "unrelated", nil))
	w.create(accounts, "not-on-the-bus", nil)
	want(t, w.found())

	w.opts.Follow = []string{"ownerReferences"}
	want(t, w.found(), "missing middle", "missing top", "extra unrelated")
	w.publish(event.Created, accounts, middle)
	w.publish(event.Created, accounts, top)
	want(t, w.found(), "extra unrelated")
	w.opts.Follow = []string{"serviceaccounts:ownerReferences"}
	want(t, w.found()) // no selected object refers to a service account then, so none is followed
}

// TestAnotherCluster verifies that Run returns an error if the claim on the bus names another
// cluster.
func TestAnotherCluster(t *testing.T) {
	w := newWorld(t)
	w.publish(event.Created, configMaps, w.create(configMaps, "a", nil))
	m, err := w.builder.ClusterClaimed(event.Claim{UID: "another", Claimed: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.send(m); err != nil {
		t.Fatal(err)
	}
	if _, err := w.verify(); err == nil || !strings.Contains(err.Error(), "belongs to another cluster on this bus") {
		t.Errorf("got %v", err)
	}
}

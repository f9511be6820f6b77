package informers

import (
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
)

// TestDeselectedWhileListing verifies that a deselection from before an informer started is not published
// while the informer lists. The object may have returned to the selection, for example on a standby whose
// namespace lost its label and got it back. An earlier version deselected every object of that namespace
// if the standby took over at that moment.
func TestDeselectedWhileListing(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	for uid, deselected := range map[string]bool{"A": true, "Z": false} {
		b.ledger.AddTombstone(testKey, event.Tombstone{UID: uid, Deselected: deselected, Cause: event.CauseWatch})
	}
	if got := uids(b.Lookup(testKey).Tombstones); !slices.Equal(got, []string{"Z"}) {
		t.Errorf("gone while the informer lists: %v, want [Z]", got)
	}
	b.sync()
	if got := uids(b.Lookup(testKey).Tombstones); len(got) != 2 {
		t.Errorf("gone after the list: %v, want [A Z]", got)
	}
}

// TestForgetUnlisted verifies that an informer that replaces another forgets the reported states of objects
// that its list lacks, and enqueues the keys with deselections that were hidden during the list. In an
// earlier version, a key stayed dirty forever if its object was deleted while the informers were replaced,
// and the resource got no more consistency points.
func TestForgetUnlisted(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	gone, left := testResource.Key("default", "gone"), testResource.Key("default", "left")
	b.list(object("A", "1"))
	b.ledger.Observe(gone, nil, object("B", "2"), event.CauseWatch, false, b.config.Now())
	b.ledger.AddTombstone(left, event.Tombstone{UID: "C", Deselected: true, Cause: event.CauseWatch})
	elsewhere := event.Resource{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true}.Key("default", "other")
	b.ledger.Observe(elsewhere, nil, object("D", "3"), event.CauseWatch, false, b.config.Now())
	b.takeEnqueued()
	b.forgetUnlisted(b.watched, b.watched.informers.All()[""])
	if got := b.takeEnqueued(); !slices.Equal(got, []event.Key{left}) {
		t.Errorf("enqueued %v, want %v", got, left)
	}
	dirty := b.ledger.Dirty()
	if len(dirty) != 3 || slices.Contains(dirty, gone) || !slices.Contains(dirty, elsewhere) {
		t.Errorf("dirty are %v, want %v, %v and %v", dirty, left, testKey, elsewhere)
	}
}

// TestDeniedBeforeTheFirstList verifies that access counts as denied if the API server refuses the first
// list of a namespace's informer. Such an informer starts if the access review failed, for example. The
// comparison then reads the namespace, which may be removed.
func TestDeniedBeforeTheFirstList(t *testing.T) {
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: []string{"default"}}}, testResource)
	i := b.watched.informers.All()["default"]
	if b.DescribeObject(testKey).Denied {
		t.Error("denied before the first list")
	}
	i.setFailing(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no")), b.config.Now())
	if !b.DescribeObject(testKey).Denied {
		t.Error("not denied, although the list is refused")
	}
	b.sync()
	if b.DescribeObject(testKey).Denied {
		t.Error("denied, although the informer has listed the namespace")
	}
}

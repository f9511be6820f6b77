package informers

import (
	"context"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
)

// TestEveryNotificationIsEnqueued verifies that every notification enqueues its key, even if
// nothing has changed, as in a resync. A lookup shows the new state when the key is enqueued.
func TestEveryNotificationIsEnqueued(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	for _, c := range []struct {
		what   string
		notify func()
		live   string
		gone   []string
	}{
		{"list", func() { b.list(object("A", "1")) }, "A.1", nil},
		{"resync", func() { b.update(object("A", "1")) }, "A.1", nil},
		{"update", func() { b.update(object("A", "2")) }, "A.2", nil},
		{"recreated, as one update", func() { b.update(object("B", "5")) }, "B.5", []string{"A"}},
		{"delete", func() { b.delete(object("B", "6")) }, "", []string{"A", "B"}},
		{"add", func() { b.add(object("C", "7")) }, "C.7", []string{"A", "B"}},
		{"delete that the watch missed", func() {
			b.index(object("D", "9")) // removes C from the indexer
			b.onDelete(b.watched.informers.All()[""], cache.DeletedFinalStateUnknown{Key: "default/web", Obj: object("C", "7")})
		}, "D.9", []string{"A", "B", "C"}},
	} {
		c.notify()
		if got := b.takeEnqueued(); len(got) != 1 || got[0] != testKey {
			t.Errorf("%s: enqueued %v, want %v", c.what, got, testKey)
		}
		v, live := b.Lookup(testKey), ""
		if v.Live != nil {
			live = string(v.Live.UID) + "." + v.Live.ResourceVersion
		}
		if got := uids(v.Tombstones); live != c.live || !slices.Equal(got, c.gone) {
			t.Errorf("%s: live %q, gone %v; want %q, %v", c.what, live, got, c.live, c.gone)
		}
		if v.Resource != testResource || v.Observed.IsZero() {
			t.Errorf("%s: got resource %+v, observed %s", c.what, v.Resource, v.Observed)
		}
	}
}

// TestADeleteOfNobodyKnowsWhat verifies that a delete notification without an object does not crash
// the handler and requests a comparison, so that the delete is not lost. client-go may not have the
// object that a relist has shown to be missing.
func TestADeleteOfNobodyKnowsWhat(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.onDelete(b.watched.informers.All()[""], cache.DeletedFinalStateUnknown{Key: "default/web"})
	if want := testResource.GroupResource(); !slices.Equal(b.compared, []schema.GroupResource{want}) {
		t.Errorf("compared %v, want %v", b.compared, want)
	}
}

// TestWhatIsLiveIsNotGone verifies that a view of a live object contains no tombstone of its UID.
// Such a tombstone exists for a while if the object left the selection and returned, or was found
// to be gone while the indexer is behind. If its delete were published, the last event of an
// existing object would be a delete.
func TestWhatIsLiveIsNotGone(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.list(object("A", "1"))
	b.ledger.AddTombstone(testKey, event.Tombstone{UID: "Z", Cause: event.CauseReconcile})
	b.ledger.AddTombstone(testKey, event.Tombstone{UID: "A", Cause: event.CauseReconcile})
	if got := uids(b.Lookup(testKey).Tombstones); !slices.Equal(got, []string{"Z"}) {
		t.Errorf("gone while live: %v, want [Z]", got)
	}
	b.delete(object("A", "2"))
	if got := uids(b.Lookup(testKey).Tombstones); !slices.Equal(got, []string{"Z", "A"}) {
		t.Errorf("gone after the delete: %v, want [Z A]", got)
	}
}

// TestLookupOfWhatIsNotWatched verifies that a view of an unwatched key contains its tombstones.
func TestLookupOfWhatIsNotWatched(t *testing.T) {
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: []string{"default"}}}, testResource)
	for name, k := range map[string]event.Key{
		"another resource":  {Group: "example.com", Resource: "widgets", Namespace: "default", Name: "web"},
		"another namespace": testResource.Key("kube-system", "web"),
	} {
		t.Run(name, func(t *testing.T) {
			b.ledger.AddTombstone(k, event.Tombstone{UID: "A"})
			v := b.Lookup(k)
			if v.Live != nil || !slices.Equal(uids(v.Tombstones), []string{"A"}) || v.Cause != event.CauseReconcile || v.Observed.IsZero() {
				t.Errorf("got %+v", v)
			}
		})
	}
}

// TestFailing verifies that setFailing reports a change only if the reason changes, not the text,
// because each change is logged.
func TestFailing(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	i := b.watched.informers.All()[""]
	i.began = time.Time{}
	first, second := time.Unix(1, 0), time.Unix(2, 0)
	forbidden := forbiddenError("configmaps", "")
	for _, c := range []struct {
		what    string
		err     error
		now     time.Time
		changed bool
		since   time.Time
	}{
		{"fails", forbidden, first, true, first},
		{"fails again for the same reason", forbiddenError("configmaps", "web"), second, false, first},
		{"fails for another reason", context.DeadlineExceeded, second, true, second},
		{"works", nil, second, true, second},
		{"works still", nil, first, false, second},
	} {
		if got := i.setFailing(c.err, c.now); got != c.changed {
			t.Errorf("%s: changed %v, want %v", c.what, got, c.changed)
		}
		if got := i.status(); got.Failing != c.err || got.Since != c.since { //nolint:errorlint // the informer keeps the error unchanged
			t.Errorf("%s: got %v since %s, want %v since %s", c.what, got.Failing, got.Since, c.err, c.since)
		}
	}
}

// TestStopForgetsWhatWasReported verifies that the states that a stopped informer reported are
// forgotten, and tombstones are kept. The states may be outdated, and would block the next first
// sync.
func TestStopForgetsWhatWasReported(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.list(object("A", "1"))
	b.update(object("B", "5"))
	other := event.Key{Resource: "pods", Namespace: "default", Name: "web"}
	b.ledger.Observe(other, nil, object("P", "1"), event.CauseWatch, true, time.Unix(1, 0))
	close(b.watched.stopped)
	b.stop([]*watched{b.watched})
	v := event.View{Live: object("B", "5")}
	b.ledger.Describe(testKey, &v)
	if !slices.Equal(uids(v.Tombstones), []string{"A"}) || v.Cause != "" {
		t.Errorf("got %+v, want the tombstone of A, and nothing of B", v)
	}
	if b.ledger.DirtyLen() != 2 || b.ledger.FirstSyncLeft(other.GroupResource()) != 1 {
		t.Error("another resource was forgotten as well")
	}
}

// aheadOf is an informer whose reflector is ahead of its indexer.
type aheadOf struct{ cache.SharedIndexInformer }

func (aheadOf) LastSyncResourceVersion() string { return "9" }

// TestVersionOfTheIndexer verifies that views contain the resourceVersion of the indexer. Before the
// fix, they contained that of the reflector, whose change had not reached the indexer yet. So an
// existing object seemed to have left the selection.
func TestVersionOfTheIndexer(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.watched.informers.All()[""].shared = aheadOf{b.watched.informers.All()[""].shared}
	b.list(object("A", "5"))
	if got := b.DescribeObject(testKey).Version; got != "5" {
		t.Errorf("the view for a comparison has version %q, want 5", got)
	}
	if got := b.Lookup(testKey).Version; got != "5" {
		t.Errorf("the view for a decision has version %q, want 5", got)
	}
}

// listing is an informer during its first list. Its indexer has objects, but no version.
type listing struct{ cache.SharedIndexInformer }

func (l listing) GetStore() cache.Store { return unversioned{l.SharedIndexInformer.GetStore()} }

type unversioned struct{ cache.Store }

func (unversioned) LastStoreSyncResourceVersion() string { return "" }

// TestVersionDuringTheFirstList verifies that a view has the version of its object if the indexer has none.
// Otherwise each object that a filter does not select would need a comparison before its deselected event.
func TestVersionDuringTheFirstList(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.list(object("A", "5"))
	b.watched.informers.All()[""].shared = listing{b.watched.informers.All()[""].shared}
	if got := b.Lookup(testKey).Version; got != "5" {
		t.Errorf("the view has version %q, want 5", got)
	}
	other := testKey
	other.Name = "other"
	if got := b.Lookup(other).Version; got != "" {
		t.Errorf("the view without an object has version %q, want none", got)
	}
}

// TestEnqueueAllIncludesTheDead verifies that EnqueueAll enqueues dirty keys without an object.
// If the bus has lost its latest events, it no longer needs their deletes. In an earlier version, such a key
// stayed dirty because nothing enqueued it.
func TestEnqueueAllIncludesTheDead(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.list(object("A", "1"))
	b.delete(object("A", "2"))
	b.takeEnqueued()
	b.EnqueueAll()
	if got := b.takeEnqueued(); !slices.Equal(got, []event.Key{testKey}) {
		t.Errorf("enqueued %v, want %v", got, testKey)
	}
}

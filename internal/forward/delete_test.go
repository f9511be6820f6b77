package forward

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// TestSyncDeleteOfALostObject verifies that the forwarder publishes the delete of an object whose
// events the bus has lost, because subscribers have seen the object. If another writer may have
// published and purged the delete, the forwarder does not publish it twice.
func TestSyncDeleteOfALostObject(t *testing.T) {
	gone := event.Tombstone{UID: "A", Object: object("A", "11"), Observed: time.Unix(100, 0), Cause: event.CauseWatch}
	for name, c := range map[string]struct {
		lost   bool
		bus    event.Acked
		second string // ID of the second delete, "" for none
	}{
		"lost":                   {true, event.Acked{}, "A.deleted"},
		"maybe deleted long ago": {false, event.Acked{}, ""},
		"deleted by another":     {true, event.Acked{UID: "A", ResourceVersion: "11", Deleted: true, Position: 9}, ""},
		"not an event":           {true, event.Acked{Position: 9}, "A.deleted.repaired.9"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{view: view(nil, gone), acked: live("A", "10"), lost: c.lost, shown: c.bus, answer: []answer{
				{err: &publish.ConflictError{Bus: c.bus}}, {position: 50},
			}}
			again, err := b.sync(t)
			if !again || err != nil {
				t.Fatalf("got again %v, err %v", again, err)
			}
			if _, err := b.sync(t); err != nil {
				t.Fatal(err)
			}
			if want := c.second != ""; len(b.sent) == 2 != want {
				t.Fatalf("%d deletes were published, want a second: %v", len(b.sent), want)
			}
			if c.second != "" {
				if m := b.sent[1]; m.Expected != c.bus.Position || m.ID != c.second || m.Attribute("finalstateunknown") != "" {
					t.Errorf("published %+v, want %s with its last state, expecting %d", m, c.second, c.bus.Position)
				}
				if want := (event.Acked{UID: "A", ResourceVersion: "11", Deleted: true, Position: 50}); b.acked != want {
					t.Errorf("acked %+v, want %+v", b.acked, want)
				}
			}
		})
	}
}

func TestSyncInferredDeleteCarriesTheLastStateOfTheBus(t *testing.T) {
	last := object("A", "10")
	misplaced := object("A", "10")
	misplaced.Name = "another"
	for name, c := range map[string]struct {
		view event.View
		last *event.Object
		body string
		fsu  string
	}{
		"the bus has it":                       {view(nil, inferred), last, `{"of":"A.10"}`, ""},
		"the resource is not watched any more": {event.View{Tombstones: []event.Tombstone{inferred}}, last, `{"of":"A.10"}`, ""},
		"the bus has lost it": {view(nil, inferred), nil,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","namespace":"default","uid":"A","resourceVersion":"10"}}`, "true"},
		"the bus has an event of another object there": {view(nil, inferred), misplaced,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","namespace":"default","uid":"A","resourceVersion":"10"}}`, "true"},
		"the bus has another UID there": {view(nil, inferred), object("Z", "3"),
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","namespace":"default","uid":"A","resourceVersion":"10"}}`, "true"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{view: c.view, acked: live("A", "10"), last: c.last, answer: []answer{{position: 9}}}
			if _, err := b.sync(t); err != nil {
				t.Fatal(err)
			}
			m := b.sent[0]
			if m.ID != "A.deleted" || string(m.Data) != c.body || m.Attribute("finalstateunknown") != c.fsu || m.Attribute("cause") != "reconcile" {
				t.Errorf("got %s, data %s, finalstateunknown %q, cause %q", m.ID, m.Data, m.Attribute("finalstateunknown"), m.Attribute("cause"))
			}
			if want := "/api/v1/namespaces/default/configmaps/web"; m.Attribute("subject") != want {
				t.Errorf("got subject %s, want %s", m.Attribute("subject"), want)
			}
		})
	}
}

func TestSyncDeleteOfAResourceThatIsNotWatchedAnyMore(t *testing.T) {
	b := &bench{view: event.View{Tombstones: []event.Tombstone{tombstone("A", "12")}}, acked: live("A", "10"), answer: []answer{{position: 9}}}
	if _, err := b.sync(t); err != nil || len(b.sent) != 1 {
		t.Fatalf("got err %v and %d publishes, want the delete", err, len(b.sent))
	}
	if got, want := b.sent[0].Attribute("subject"), "/api/v1/namespaces/default/configmaps/web"; got != want {
		t.Errorf("got subject %s, want %s", got, want)
	}
}

// TestSyncDeleteOfAnObjectLastSeenInAnotherVersion verifies that the subject and the apiversion of a
// delete name the same API version. The last state of a deleted object can have another API version
// than the one that is watched now. Before the fix, the subject named the new API version and
// apiversion the old one (found by the torture suite).
func TestSyncDeleteOfAnObjectLastSeenInAnotherVersion(t *testing.T) {
	moved := event.Resource{Version: "v2", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	for name, c := range map[string]struct {
		tombstone event.Tombstone
		last      *event.Object
	}{
		"by the watch": {tombstone: tombstone("A", "12")},
		"by the bus":   {inferred, object("A", "10")},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{view: event.View{Resource: moved, Tombstones: []event.Tombstone{c.tombstone}}, acked: live("A", "10"), last: c.last, answer: []answer{{position: 9}}}
			if _, err := b.sync(t); err != nil {
				t.Fatal(err)
			}
			got := b.sent[0].Attribute("apiversion") + " " + b.sent[0].Attribute("subject")
			if want := "v1 /api/v1/namespaces/default/configmaps/web"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// TestSyncDeleteHasTheTimeOfItsStorage verifies that the retention of a delete starts when the bus
// stores it. Otherwise a delete that waited for the bus longer than the retention would be purged at
// once, and subscribers could miss it.
func TestSyncDeleteHasTheTimeOfItsStorage(t *testing.T) {
	b := &bench{view: view(nil, tombstone("A", "12")), acked: live("A", "10"), answer: []answer{{position: 9}}}
	c, stored := b.config(prometheus.NewRegistry()), b.view.Observed.Add(48*time.Hour)
	c.Now = func() time.Time { return stored }
	if _, err := syncOnce(t, New(c)); err != nil {
		t.Fatal(err)
	}
	if got := b.term.Get(key); !got.Deleted || got.Time != stored.UnixMilli() {
		t.Errorf("got %+v, want a delete with the time %d", got, stored.UnixMilli())
	}
}

func TestSyncInferredDeleteWaitsForTheBus(t *testing.T) {
	failure := errors.New("bus down")
	b := &bench{view: view(nil, inferred), acked: live("A", "10"), readErr: failure}
	if _, err := b.sync(t); !errors.Is(err, failure) || len(b.sent) != 0 {
		t.Errorf("got err %v and %d publishes, want the error of the bus and no publish", err, len(b.sent))
	}
}

package forward

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// TestSyncAfterAProjectionChange verifies that after a change of the projection, only objects whose
// content on the bus differs are published.
func TestSyncAfterAProjectionChange(t *testing.T) {
	const small, whole = `"spec":1`, `"spec":1,"noise":2`
	digest := withDigest(t, sent("A", "10", small)).Digest
	for name, c := range map[string]struct {
		live    *event.Object
		acked   event.Digest
		bus     *event.Object
		readErr error
		epoch   uint16
		want    string // id, "" for none
	}{
		"it comes, as history went back":                    {live: withDigest(t, sent("A", "9", small)), bus: sent("A", "10", small), epoch: 1, want: "A.9"},
		"it comes, and leaves out nothing of this":          {live: withDigest(t, sent("A", "10", small)), bus: sent("A", "10", small)},
		"it comes, and leaves out something":                {live: withDigest(t, sent("A", "10", small)), bus: sent("A", "10", whole), want: "A.10.projected.7"},
		"it comes, and a change is only in what it leaves":  {live: withDigest(t, sent("A", "11", small)), bus: sent("A", "10", small)},
		"it comes, and the object has changed":              {live: withDigest(t, sent("A", "11", small)), bus: sent("A", "10", `"spec":3`), want: "A.11"},
		"it comes, and the bus has lost the state":          {live: withDigest(t, sent("A", "10", small)), want: "A.10.projected.7"},
		"it comes, and had come before: the bus has it cut": {live: withDigest(t, sent("A", "10", small)), bus: sent("A", "10", small)},
		"it comes, and the bus cannot be read":              {live: withDigest(t, sent("A", "10", small)), readErr: errors.New("away"), want: "error"},
		"it goes, and had left out nothing of this":         {live: sent("A", "10", small), acked: digest},
		"it goes, and had left out something":               {live: sent("A", "10", whole), acked: digest, want: "A.10.projected.7"},
		"it goes, and the object has changed":               {live: sent("A", "11", small), acked: digest, want: "A.11"},
		"it changes":                                        {live: withDigest(t, sent("A", "10", whole)), acked: digest, want: "A.10.projected.7"},
		"it changes, and the bus has another state":         {live: withDigest(t, sent("A", "10", whole)), acked: digest, bus: withDigest(t, sent("A", "10", small)), want: "A.10.projected.7"},
		"it changes, and another forwarder published that":  {live: withDigest(t, sent("A", "10", whole)), acked: digest, bus: withDigest(t, sent("A", "10", whole))},
	} {
		t.Run(name, func(t *testing.T) {
			acked := live("A", "10")
			acked.Digest = c.acked
			v := view(c.live)
			v.Epoch = c.epoch
			b := &bench{view: v, acked: acked, last: c.bus, readErr: c.readErr, answer: []answer{{position: 8}}}
			_, err := b.sync(t)
			got := ""
			switch {
			case err != nil:
				got = "error"
			case len(b.sent) > 0:
				got = b.sent[0].ID
			}
			if got != c.want {
				t.Fatalf("published %q (%v), want %q", got, err, c.want)
			}
			if err == nil && b.acked.Digest != c.live.Digest {
				t.Errorf("the checkpoint has the digest %s, want %s", b.acked.Digest, c.live.Digest)
			}
			if got == "" && (len(b.settled) != 1 || b.settled[0].ResourceVersion != c.live.ResourceVersion) {
				t.Errorf("settled %+v, want the version of the live object", b.settled)
			}
		})
	}
}

// TestSyncOfTheSameContentAfterAnUnansweredRemoval verifies that an object is published after an
// unacknowledged removal although the last acknowledged event has its content. The bus can have the
// removal, or receive it later.
func TestSyncOfTheSameContentAfterAnUnansweredRemoval(t *testing.T) {
	for name, unanswered := range map[string]bool{"an unanswered removal": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			b := &bench{view: view(withDigest(t, sent("A", "12", `"spec":1`))), acked: live("A", "10"), last: sent("A", "10", `"spec":1`), answer: []answer{{position: 9}}}
			f := b.forwarder()
			if unanswered {
				b.known().Unanswered(key, b.acked, event.Acked{UID: "A", ResourceVersion: "11", Deleted: true}, nil, ledger.Interest{Selected: true, Published: true})
			}
			if _, err := syncOnce(t, f); err != nil || len(b.sent) > 0 != unanswered {
				t.Errorf("published %d events (%v)", len(b.sent), err)
			}
		})
	}
}

// TestSyncOfAnotherTextOfTheSameVersion verifies that another text of the same version is published
// only if its content differs. Otherwise the new digest is recorded, so the comparison is not
// repeated.
func TestSyncOfAnotherTextOfTheSameVersion(t *testing.T) {
	now, before := event.Digest{1}, event.Digest{2}
	for name, c := range map[string]struct {
		live    string
		acked   event.Digest
		bus     *event.Object
		readErr error
		want    string // id, "" for none
	}{
		"a field has a default now":                {live: `"spec":1,"new":2`, acked: before, bus: sent("A", "10", `"spec":1`), want: "A.10.projected.7"},
		"a field is pruned":                        {live: `"spec":1`, acked: before, bus: sent("A", "10", `"spec":1,"old":2`), want: "A.10.projected.7"},
		"a field is pruned, of an older forwarder": {live: `"spec":1`, bus: sent("A", "10", `"spec":1,"old":2`), want: "A.10.projected.7"},
		"its members are in another order":         {live: `"spec":1,"same":2`, acked: before, bus: sent("A", "10", `"same":2,"spec":1`)},
		"it is written with spaces":                {live: `"spec": 1`, acked: before, bus: sent("A", "10", `"spec":1`)},
		"it is in another version of the API":      {live: `"apiVersion":"v2","spec":1`, acked: before, bus: sent("A", "10", `"apiVersion":"v1","spec":1`)},
		"it is as an older forwarder sent it":      {live: `"spec":1`, bus: sent("A", "10", `"spec":1`)},
		"the bus has it truncated":                 {live: `"spec":1`, acked: before, bus: &event.Object{UID: "A", ResourceVersion: "10"}, want: "A.10.projected.7"},
		"the bus has lost it":                      {live: `"spec":1`, acked: before, want: "A.10.projected.7"},
		"the bus cannot be read":                   {live: `"spec":1`, acked: before, readErr: errors.New("away"), want: "error"},
	} {
		t.Run(name, func(t *testing.T) {
			o := sent("A", "10", c.live)
			o.Digest = now
			acked := live("A", "10")
			acked.Digest = c.acked
			b := &bench{view: view(o), acked: acked, last: c.bus, readErr: c.readErr, answer: []answer{{position: 8}, {position: 9}}}
			_, err := b.sync(t)
			got := ""
			switch {
			case err != nil:
				got = "error"
			case len(b.sent) > 0:
				got = b.sent[0].ID
			}
			if got != c.want {
				t.Fatalf("published %q (%v), want %q", got, err, c.want)
			}
			if err != nil {
				return
			}
			if b.acked.Digest != now {
				t.Errorf("the checkpoint has the digest %q, want %q", b.acked.Digest, now)
			}
			if got != "" && b.sent[0].Attribute("digest") != now.String() {
				t.Errorf("the event has the digest %q, want %q", b.sent[0].Attribute("digest"), now)
			}
			n := len(b.sent)
			b.last, b.readErr = nil, errors.New("it is read again")
			if _, err := b.sync(t); err != nil || len(b.sent) != n {
				t.Errorf("next sync: error %v, %d more publishes; want none", err, len(b.sent)-n)
			}
		})
	}
}

// TestSyncSetsChanged verifies that the changed attribute compares with the last acknowledged state.
func TestSyncSetsChanged(t *testing.T) {
	before, after := sent("A", "10", `"spec":1,"same":0`), sent("A", "11", `"spec":2,"same":0`)
	for name, c := range map[string]struct {
		known, bus *event.Object
		readErr    error
		want       string
	}{
		"it is remembered":           {known: before, want: "/spec"},
		"it is read from the bus":    {bus: before, want: "/spec"},
		"the bus has lost it":        {},
		"the bus has another object": {bus: sent("B", "10", `"spec":1`)},
		"the bus cannot be read":     {readErr: errors.New("away")},
		"the bus has a part of it":   {bus: &event.Object{UID: "A", ResourceVersion: "10"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := view(after)
			v.Before = c.known
			b := &bench{view: v, acked: live("A", "10"), last: c.bus, readErr: c.readErr, answer: []answer{{position: 8}}}
			if _, err := b.sync(t); err != nil || len(b.sent) != 1 {
				t.Fatalf("%d publishes, error %v; want one", len(b.sent), err)
			}
			if got := b.sent[0].Attribute("changed"); got != c.want {
				t.Errorf("changed is %q, want %q", got, c.want)
			}
			if len(b.states) != 1 || b.states[0] != after {
				t.Errorf("acknowledged states are %v, want the new state", b.states)
			}
		})
	}
}

// TestSyncTooLargeWithPreviousState verifies that an event that is too large loses its previous
// state before its object is truncated.
func TestSyncTooLargeWithPreviousState(t *testing.T) {
	v := view(sent("A", "11", `"spec":2`))
	v.Before = sent("A", "10", `"spec":1`)
	b := &bench{view: v, acked: live("A", "10"), answer: []answer{{err: publish.ErrTooLarge}, {position: 8}}}
	f := b.forwarder()
	f.Builder.Data = event.DataChange
	var data string // of the last message, whose memory is freed once it is acknowledged
	f.Publish = func(ctx context.Context, m *event.Message, done func(uint64, error)) {
		data = string(m.Data)
		b.publish(ctx, m, done)
	}
	if _, err := syncOnce(t, f); err != nil || len(b.sent) != 2 {
		t.Fatalf("%d publishes, error %v; want two", len(b.sent), err)
	}
	if b.sent[1].Attribute("truncated") != "" || !strings.Contains(data, `"spec":2`) || !strings.Contains(data, `"previous":null`) {
		t.Errorf("published %s", data)
	}
}

// TestReloadDuringComparisonWins verifies that a comparison of contents does not overwrite an entry
// that a reload of the checkpoint has changed meanwhile. An earlier version stored the digest of the
// comparison in that entry.
func TestReloadDuringComparisonWins(t *testing.T) {
	o := sent("A", "10", `"spec":1,"same":2`)
	o.Digest = event.Digest{1}
	acked := live("A", "10")
	acked.Digest = event.Digest{2}
	b := &bench{view: view(o), acked: acked}
	f := b.forwarder()
	later := event.Acked{UID: "A", ResourceVersion: "10", Position: 9, Deleted: true}
	f.History = historyFunc(func(context.Context) (*event.Object, error) {
		b.acked = later
		return sent("A", "10", `"same":2,"spec":1`), nil
	})
	if _, err := syncOnce(t, f); err != nil {
		t.Fatal(err)
	}
	if b.acked != later {
		t.Errorf("the checkpoint has %+v, want %+v", b.acked, later)
	}
}

// TestLoadDuringAReadDecidesAgain verifies that Sync decides again if a load changes the entry
// while the last state is read. In an earlier version, the bus had lost its latest events and reused
// the position, so it accepted the update after a later state.
func TestLoadDuringAReadDecidesAgain(t *testing.T) {
	b := &bench{view: view(sent("A", "11", `"spec":2`)), acked: live("A", "10")}
	f := b.forwarder()
	later := live("A", "12") // at the position of the known event
	f.History = historyFunc(func(context.Context) (*event.Object, error) {
		b.acked = later
		return sent("A", "10", `"spec":1`), nil
	})
	if again, err := syncOnce(t, f); !again || err != nil || len(b.sent) != 0 || b.acked != later {
		t.Errorf("again %t, error %v, %d publishes, the entry is %+v", again, err, len(b.sent), b.acked)
	}
}

// TestLoadDuringAReadOfAForeignEventDecidesAgain verifies that Sync decides again if a load recognizes a
// foreign event as a removal of this forwarder while the event is read. In an earlier version, Sync repaired
// the removal with an earlier state of the object (found by the simulator).
func TestLoadDuringAReadOfAForeignEventDecidesAgain(t *testing.T) {
	foreign := at(live("A", "9"), 50)
	foreign.Foreign = true
	b := &bench{view: view(object("A", "9")), acked: foreign}
	b.view.Outlived.Position = foreign.Position
	f := b.forwarder()
	removal := at(event.Acked{UID: "A", ResourceVersion: "10", Deleted: true, Deselected: true}, 50)
	f.History = historyFunc(func(context.Context) (*event.Object, error) {
		b.acked = removal
		return object("A", "10"), nil
	})
	if again, err := syncOnce(t, f); !again || err != nil || len(b.sent) != 0 || b.acked != removal {
		t.Errorf("again %t, error %v, %d publishes, the entry is %+v", again, err, len(b.sent), b.acked)
	}
}

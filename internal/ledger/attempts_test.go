package ledger

import (
	"strconv"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestAttempts verifies which attempts an unacknowledged publish leaves, and which results from the
// bus clear them.
func TestAttempts(t *testing.T) {
	created, removal := message("A", "11"), event.Acked{UID: "A", ResourceVersion: "12", Deleted: true}
	unanswered := func(acked, sent event.Acked) func(*Ledger) {
		return func(d *Ledger) { d.term.Unanswered(testKey, acked, sent, nil, wanted) }
	}
	put := func(a event.Acked) func(*Ledger) { return func(d *Ledger) { d.term.Put(testKey, a) } }
	adopt := func(was, is event.Acked) func(*Ledger) { return func(d *Ledger) { d.term.Adopt(testKey, was, is) } }
	for name, c := range map[string]struct {
		steps     []func(*Ledger)
		attempted string
		created   bool // the created event is recognized on the bus
		removal   bool // the removal is recognized on the bus
	}{
		"none":                               {nil, "", false, false},
		"a create":                           {[]func(*Ledger){unanswered(event.Acked{}, created)}, "A", true, false},
		"then one that was not sent":         {[]func(*Ledger){unanswered(event.Acked{}, created), unanswered(event.Acked{}, event.Acked{})}, "A", true, false},
		"then a removal":                     {[]func(*Ledger){unanswered(event.Acked{}, created), unanswered(event.Acked{}, removal)}, "A", true, true},
		"a removal of what the bus shows":    {[]func(*Ledger){put(created), unanswered(created, removal)}, "A", false, true},
		"a removal of another UID":           {[]func(*Ledger){put(message("B", "1")), unanswered(message("B", "1"), removal)}, "", false, true},
		"an acknowledgement":                 {[]func(*Ledger){unanswered(event.Acked{}, created), func(d *Ledger) { d.term.Acknowledge(testKey, created, object("A", "11"), wanted) }}, "", false, false},
		"a conflict":                         {[]func(*Ledger){unanswered(event.Acked{}, created), put(message("B", "1"))}, "", false, false},
		"adopted":                            {[]func(*Ledger){unanswered(event.Acked{}, created), adopt(event.Acked{}, at(created, 7))}, "", false, false},
		"adopted what it expects":            {[]func(*Ledger){put(at(removal, 6)), unanswered(at(removal, 6), created), adopt(at(removal, 6), at(removal, 6))}, "A", true, false},
		"not adopted, the bus has moved on":  {[]func(*Ledger){unanswered(event.Acked{}, created), adopt(removal, created)}, "A", true, false},
		"another entry without an answer":    {[]func(*Ledger){unanswered(event.Acked{}, created), func(d *Ledger) { d.term.Replace(testKey, event.Acked{}, created) }}, "A", true, false},
		"a load":                             {[]func(*Ledger){unanswered(event.Acked{}, created), func(d *Ledger) { load(d.term, nil, func() {}) }}, "A", true, false},
		"a load that shows another event":    {[]func(*Ledger){unanswered(event.Acked{}, created), func(d *Ledger) { load(d.term, map[event.Key]event.Acked{testKey: live("B", "13")}, func() {}) }}, "", false, false},
		"the next term":                      {[]func(*Ledger){unanswered(event.Acked{}, created), func(d *Ledger) { d.NewTerm() }}, "", false, false},
		"what is settled without an answer":  {[]func(*Ledger){unanswered(event.Acked{}, created), func(d *Ledger) { d.term.Settle(testKey, event.Acked{}, wanted, "") }}, "A", true, false},
		"another object of the name, unsent": {[]func(*Ledger){unanswered(event.Acked{}, created), unanswered(event.Acked{}, message("B", "13"))}, "B", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newLedger()
			for _, step := range c.steps {
				step(d)
			}
			var view event.View
			if d.Describe(testKey, &view); view.Attempted != c.attempted {
				t.Errorf("attempted is %q, want %q", view.Attempted, c.attempted)
			}
			for _, of := range []struct {
				sent event.Acked
				want bool
			}{{created, c.created}, {removal, c.removal}} {
				of.sent.Position, of.sent.Time = 7, 8 // as the bus shows it
				if got := d.term.IsAttempt(testKey, of.sent); got != of.want {
					t.Errorf("%+v is an attempt: %t, want %t", of.sent, got, of.want)
				}
			}
		})
	}
}

// TestAttemptsAreBounded verifies that a record keeps only the latest attempts, and that the ledger
// drops the record when the bus reports the key's last event.
func TestAttemptsAreBounded(t *testing.T) {
	d := newLedger()
	for n := range 2 * maxAttempts {
		d.term.Unanswered(testKey, event.Acked{}, message("A", strconv.Itoa(n)), nil, wanted)
	}
	for n, want := range map[int]bool{0: false, maxAttempts - 1: false, maxAttempts: true, 2*maxAttempts - 1: true} {
		if got := d.term.IsAttempt(testKey, message("A", strconv.Itoa(n))); got != want {
			t.Errorf("attempt %d is remembered: %t, want %t", n, got, want)
		}
	}
	if d.term.Put(testKey, event.Acked{}); len(d.tables) > 0 {
		t.Error("a record is left after the answer")
	}
}

// TestUnansweredKeepsTheTombstone verifies that Unanswered keeps only the tombstone of the UID that
// the bus may show.
func TestUnansweredKeepsTheTombstone(t *testing.T) {
	d := newLedger()
	d.term.Unanswered(testKey, event.Acked{}, message("A", "11"), nil, wanted)
	d.AddTombstone(testKey, event.Tombstone{UID: "A", Observed: time.Unix(1, 0)})
	d.AddTombstone(testKey, event.Tombstone{UID: "B", Observed: time.Unix(1, 0)})
	d.term.Unanswered(testKey, event.Acked{}, event.Acked{}, nil, wanted)
	if got, want := describe(d), "[A.?]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	d.term.Put(testKey, event.Acked{})
	d.term.Settle(testKey, event.Acked{}, wanted, "")
	if got, want := describe(d), "nothing"; got != want {
		t.Errorf("after the answer: got %q, want %q", got, want)
	}
}

// TestUnansweredKeepsTheTombstoneOfEveryAttempt verifies that Unanswered keeps the tombstones of all
// attempts. If several objects use one name while the bus acknowledges nothing, the bus can end up
// with any of them. An earlier version sent a consistency point while the bus showed the first object.
func TestUnansweredKeepsTheTombstoneOfEveryAttempt(t *testing.T) {
	d := newLedger()
	d.term.Unanswered(testKey, event.Acked{}, message("A", "11"), nil, wanted)
	d.AddTombstone(testKey, event.Tombstone{UID: "A", Observed: time.Unix(1, 0)})
	d.term.Unanswered(testKey, event.Acked{}, message("B", "13"), nil, wanted)
	d.AddTombstone(testKey, event.Tombstone{UID: "B", Observed: time.Unix(1, 0)})
	d.term.Unanswered(testKey, event.Acked{}, event.Acked{}, nil, wanted)
	if got, want := describe(d), "[A.?] [B.?]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestWhatIsNotWantedIsAbandoned verifies that a state that does not belong on the bus does not keep
// its key dirty, unless the bus may show the object and needs its removal.
func TestWhatIsNotWantedIsAbandoned(t *testing.T) {
	unselected, filtered := Interest{}, Interest{Selected: true}
	for name, c := range map[string]struct {
		acked, sent event.Acked
		of          Interest
		want        string
	}{
		"wanted":                                  {event.Acked{}, event.Acked{}, wanted, "A.1"},
		"not selected":                            {event.Acked{}, event.Acked{}, unselected, "nothing"},
		"not selected, and on the bus":            {message("A", "0"), event.Acked{}, unselected, "nothing"},
		"its content does not match":              {event.Acked{}, event.Acked{}, filtered, "nothing"},
		"its content does not match, on the bus":  {message("A", "0"), event.Acked{}, filtered, "A.1"},
		"its content does not match, it may be":   {event.Acked{}, message("A", "0"), filtered, "A.1"},
		"its content does not match, was removed": {deleted("A", "0"), event.Acked{}, filtered, "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newLedger()
			d.Observe(testKey, nil, object("A", "1"), event.CauseWatch, false, time.Unix(1, 0))
			c.of.Reports = d.Reports()
			d.term.Unanswered(testKey, c.acked, c.sent, nil, c.of)
			if got := describe(d); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestWhatWasReportedSinceIsNotAbandoned verifies that a state stays dirty if it was reported after the informers
// were asked whether the object belongs on the bus. An earlier version forgot that state, so a consistency point
// could come before its event (found by the simulator).
func TestWhatWasReportedSinceIsNotAbandoned(t *testing.T) {
	for name, settle := range map[string]func(*Ledger, Interest){
		"settled":      func(d *Ledger, in Interest) { d.term.Settle(testKey, event.Acked{}, in, "") },
		"acknowledged": func(d *Ledger, in Interest) { d.term.Acknowledge(testKey, deleted("A", "0"), nil, in) },
		"unanswered":   func(d *Ledger, in Interest) { d.term.Unanswered(testKey, event.Acked{}, event.Acked{}, nil, in) },
	} {
		d := newLedger()
		filtered := Interest{Selected: true, Reports: d.Reports()}
		d.Observe(testKey, nil, object("A", "1"), event.CauseWatch, false, time.Unix(1, 0))
		settle(d, filtered)
		if got, want := describe(d), "A.1"; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// TestUnansweredCreate verifies that a key stays dirty until the bus answers whether it has stored the
// first event of the object, even if the informers forget the object.
func TestUnansweredCreate(t *testing.T) {
	created := &event.Change{Type: event.Created, Object: object("A", "11"), Observed: time.Unix(1, 0)}
	forgotten := func(d *Ledger) { d.Abandon(all, showsNothing) }
	for name, c := range map[string]struct {
		acked event.Acked
		then  func(*Ledger)
		dirty bool
	}{
		"no answer":          {dirty: true, then: func(*Ledger) {}},
		"still no answer":    {dirty: true, then: func(d *Ledger) { d.term.Unanswered(testKey, event.Acked{}, event.Acked{}, nil, wanted) }},
		"a load without it":  {dirty: true, then: func(d *Ledger) { load(d.term, nil, func() {}) }},
		"a load with it":     {then: func(d *Ledger) { load(d.term, map[event.Key]event.Acked{testKey: live("A", "11")}, func() {}) }},
		"it is acknowledged": {then: func(d *Ledger) { d.term.Acknowledge(testKey, live("A", "11"), created.Object, wanted) }},
		"a conflict":         {then: func(d *Ledger) { d.term.Put(testKey, live("B", "9")) }},
		"the term ends":      {then: func(d *Ledger) { d.term.End() }},
		"another writer's event": {then: func(d *Ledger) {
			was := d.term.Get(testKey)
			d.term.Adopt(testKey, was, at(live("C", "5"), 0)) // at the position that the attempt expects
		}},
		"the object was known": {acked: live("A", "10"), then: func(*Ledger) {}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newLedger()
			d.term.Put(testKey, c.acked)
			d.Observe(testKey, nil, created.Object, event.CauseWatch, false, time.Unix(1, 0))
			d.term.Unanswered(testKey, c.acked, message("A", "11"), created, wanted)
			forgotten(d)
			m := d.Mark(testKey.GroupResource())
			if c.then(d); d.IsDirty(testKey) != c.dirty || d.Reached(m) == c.dirty || d.DirtyLen() > 0 != c.dirty || d.Oldest().IsZero() == c.dirty {
				t.Errorf("dirty: %t, reached: %t, %d dirty since %v; want dirty %t", d.IsDirty(testKey), d.Reached(m), d.DirtyLen(), d.Oldest(), c.dirty)
			}
			if v := (event.View{}); c.dirty {
				if d.Describe(testKey, &v); v.Unanswered != created {
					t.Errorf("the view has the change %+v", v.Unanswered)
				}
			}
		})
	}
	t.Run("the informers forget it in flight", func(t *testing.T) {
		d := newLedger()
		d.Observe(testKey, nil, created.Object, event.CauseWatch, false, time.Unix(1, 0))
		if forgotten(d); d.IsDirty(testKey) {
			t.Error("dirty before the attempt has failed")
		}
		if d.term.Unanswered(testKey, event.Acked{}, message("A", "11"), created, wanted); !d.IsDirty(testKey) || !d.Oldest().Equal(created.Observed) {
			t.Errorf("dirty: %t, since %v", d.IsDirty(testKey), d.Oldest())
		}
	})
}

// TestAdoptedEventNeedsNoConfirmation verifies that the result of a consistent read does not keep a key
// dirty after the forwarder has adopted the foreign event. If no informer shows the object, nothing
// else would make the key clean.
func TestAdoptedEventNeedsNoConfirmation(t *testing.T) {
	d := newLedger()
	foreign := at(live("A", "5"), 3)
	foreign.Foreign = true
	d.term.Put(testKey, foreign)
	d.MarkOutlived(testKey, event.Outlived{Position: 3, Unselected: true}, time.Unix(1, 0))
	if !d.IsDirty(testKey) {
		t.Fatal("the key is clean, so this test verifies nothing")
	}
	if d.term.Adopt(testKey, foreign, at(live("A", "5"), 3)); d.IsDirty(testKey) {
		t.Error("the key stays dirty")
	}
}

// message returns the event of a message that the bus has not stored yet, so it has no position.
func message(uid, version string) event.Acked { return at(live(uid, version), 0) }

// TestUnansweredRemovalIsFound verifies that a load or a conflict recognizes the removal of an
// unacknowledged publish. An earlier version treated the removal as foreign, and published it again
// if a tombstone had replaced it on the bus.
func TestUnansweredRemovalIsFound(t *testing.T) {
	known := at(live("A", "11"), 7)
	finds := map[string]func(*Ledger, event.Acked){
		"a load":     func(d *Ledger, bus event.Acked) { load(d.term, map[event.Key]event.Acked{testKey: bus}, func() {}) },
		"a conflict": func(d *Ledger, bus event.Acked) { conflict(d, event.Deleted, known, bus) },
	}
	for name, c := range map[string]struct {
		shown   event.Acked
		foreign bool
	}{
		"the removal":     {at(deleted("A", "12"), 8), false},
		"another removal": {at(deleted("A", "13"), 8), true},
		"another object":  {at(live("B", "13"), 8), true},
	} {
		for finder, find := range finds {
			t.Run(name+", by "+finder, func(t *testing.T) {
				d := newLedger()
				load(d.term, map[event.Key]event.Acked{testKey: known}, func() {})
				d.term.Unanswered(testKey, known, message("A", "12"), nil, wanted)
				d.term.Unanswered(testKey, known, at(deleted("A", "12"), 0), nil, wanted)
				find(d, c.shown)
				if got := d.term.Get(testKey); got.Foreign != c.foreign || got.Position != 8 || !c.foreign && got != c.shown {
					t.Errorf("the entry is %+v", got)
				}
			})
		}
	}
}

// TestRemovalIsFoundBeforeItsTimeout verifies that nothing stays unacknowledged if a load finds a
// removal on the bus before its publish times out. An earlier version kept the attempts, because the
// next load found no new position. So Decide waited for the object, and the key stayed dirty.
func TestRemovalIsFoundBeforeItsTimeout(t *testing.T) {
	d, known, removed := newLedger(), at(live("A", "11"), 7), at(deleted("A", "12"), 8)
	find := func(is event.Acked) { load(d.term, map[event.Key]event.Acked{testKey: is}, func() {}) }
	find(known)
	d.AddTombstone(testKey, tombstone("A", "12"))
	d.term.Unanswered(testKey, known, message("A", "12"), nil, wanted)
	find(removed)
	if got := d.term.Get(testKey); !got.Foreign || got.Position != 8 {
		t.Fatalf("the entry is %+v, so this test verifies nothing", got)
	}
	d.term.Unanswered(testKey, known, at(removed, 0), nil, wanted)
	find(removed)
	var v event.View
	d.Describe(testKey, &v)
	if got := d.term.Get(testKey); got != removed || v.Attempted != "" {
		t.Errorf("the entry is %+v, attempted %q", got, v.Attempted)
	}
	if c, reason := decide(v, removed, v.Attempted); c != nil || reason != ReasonGone {
		t.Errorf("decided %+v, %s", c, reason)
	}
}

// TestUnansweredRepair verifies that the forwarder retries the repair of a foreign delete if the object is gone
// now and its last state is unknown, because the bus may have stored the repair. An earlier version waited for
// the object, so the key stayed dirty (found by the simulator).
func TestUnansweredRepair(t *testing.T) {
	d, known, forged := newLedger(), at(live("A", "11"), 1), at(deleted("A", "11"), 2)
	load(d.term, map[event.Key]event.Acked{testKey: known}, func() {})
	load(d.term, map[event.Key]event.Acked{testKey: forged}, func() {})
	foreign := d.term.Get(testKey)
	if !foreign.Foreign || !foreign.Live() {
		t.Fatalf("the entry is %+v, so this test verifies nothing", foreign)
	}
	d.term.Unanswered(testKey, foreign, message("A", "11"), &event.Change{Type: event.Created, Object: object("A", "11")}, wanted)
	d.AddTombstone(testKey, event.Tombstone{UID: "A", Confirmed: true, Contradicts: 2})
	d.term.Adopt(testKey, foreign, forged)
	var v event.View
	d.Describe(testKey, &v)
	if c, reason := Decide(v); c == nil || c.Type != event.Created || string(c.Object.UID) != "A" || reason != ReasonUncertain {
		t.Errorf("decided %+v, %s", c, reason)
	}
}

// TestLossIsFoundBeforeATimeout verifies that nothing stays unacknowledged if the bus loses an event,
// and a load finds the loss before the object's next publish times out. The bus refuses such a publish.
// An earlier version remembered the publish, so Decide waited for the object, and the key stayed dirty.
func TestLossIsFoundBeforeATimeout(t *testing.T) {
	d, shown := newLedger(), event.Acked{UID: "A", Foreign: true, Position: 1}
	d.term.Unanswered(testKey, event.Acked{}, message("A", "11"), &event.Change{Object: object("A", "11")}, wanted)
	load(d.term, map[event.Key]event.Acked{testKey: shown}, func() {})
	d.AddTombstone(testKey, event.Tombstone{UID: "A", Confirmed: true, Contradicts: 1})
	load(d.term, nil, func() {}) // the bus has lost the event
	d.term.Unanswered(testKey, shown, at(deleted("A", ""), 0), &event.Change{}, wanted)
	var v event.View
	d.Describe(testKey, &v)
	c, reason := Decide(v)
	if v.Acked != (event.Acked{}) || c != nil || reason != ReasonGone {
		t.Fatalf("the entry is %+v, attempted %q, decided %+v, %s", v.Acked, v.Attempted, c, reason)
	}
	d.term.Settle(testKey, v.Acked, wanted, "")
	if d.IsDirty(testKey) {
		t.Error("the key is still dirty")
	}
}

// TestLaterEventBeforeATimeout verifies that the ledger forgets a publish that times out after a load has found
// a later event, because the bus refuses that publish. An earlier version remembered it. With a tombstone of the
// object, the forwarder could then publish an earlier state (found by the simulator).
func TestLaterEventBeforeATimeout(t *testing.T) {
	d, known, removed := newLedger(), at(live("A", "10"), 1), at(deleted("A", "10"), 2)
	load(d.term, map[event.Key]event.Acked{testKey: known}, func() {})
	d.term.Unanswered(testKey, known, at(deleted("A", "10"), 0), nil, wanted) // it arrives late
	load(d.term, map[event.Key]event.Acked{testKey: removed}, func() {})
	if got := d.term.Get(testKey); got.Foreign || got.Position != 2 {
		t.Fatalf("the entry is %+v, so this test verifies nothing", got)
	}
	d.term.Unanswered(testKey, known, message("A", "16"), &event.Change{Object: object("A", "16")}, wanted)
	var v event.View
	if d.Describe(testKey, &v); v.Attempted != "" {
		t.Errorf("attempted %q", v.Attempted)
	}
}

// TestForeignEventAfterALoss verifies that the ledger remembers a publish that times out after one load
// found a loss and the next load found a foreign event. That event may be the publish.
func TestForeignEventAfterALoss(t *testing.T) {
	d, known, foreign := newLedger(), at(live("A", "11"), 7), at(live("B", "12"), 3)
	load(d.term, map[event.Key]event.Acked{testKey: known}, func() {})
	load(d.term, nil, func() {})
	load(d.term, map[event.Key]event.Acked{testKey: foreign}, func() {})
	if !d.term.Get(testKey).Foreign {
		t.Fatal("the entry is not foreign, so this test verifies nothing")
	}
	d.term.Unanswered(testKey, known, message("A", "13"), &event.Change{Object: object("A", "13")}, wanted)
	if !d.term.IsAttempt(testKey, message("A", "13")) {
		t.Error("the publish is forgotten")
	}
}

// TestPurgeBeforeATimeout verifies that the ledger remembers a publish that times out after retention
// purged the preceding event. The bus may have stored the publish before the purge.
func TestPurgeBeforeATimeout(t *testing.T) {
	d, removed := newLedger(), at(deleted("A", "12"), 7)
	load(d.term, map[event.Key]event.Acked{testKey: removed}, func() {})
	d.term.Replace(testKey, removed, event.Acked{})
	d.term.Unanswered(testKey, removed, message("B", "13"), &event.Change{Object: object("B", "13")}, wanted)
	var v event.View
	if d.Describe(testKey, &v); v.Attempted != "B" || v.Unanswered == nil {
		t.Errorf("attempted %q, unanswered %v", v.Attempted, v.Unanswered)
	}
}

// TestConflictAfterALoad verifies that a conflict has no effect if a load has changed the entry
// since the decision.
func TestConflictAfterALoad(t *testing.T) {
	known, removed := at(live("A", "11"), 7), at(deleted("A", "12"), 8)
	d := newLedger()
	load(d.term, map[event.Key]event.Acked{testKey: known}, func() {})
	d.term.Unanswered(testKey, known, at(removed, 0), nil, wanted)
	load(d.term, map[event.Key]event.Acked{testKey: removed}, func() {})
	conflict(d, event.Updated, known, removed)
	if got := d.term.Get(testKey); got != removed {
		t.Errorf("the entry is %+v, want %+v", got, removed)
	}
}

// conflict records that the bus refused a change that follows acked because the bus has another
// event.
func conflict(d *Ledger, t event.Type, acked, bus event.Acked) {
	d.term.Conflict(event.Change{Key: testKey, Type: t, Object: object("A", "12")}, acked, bus, true)
}

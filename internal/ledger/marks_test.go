package ledger

import (
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

func TestMarks(t *testing.T) {
	other := testResource.Key("default", "other")
	observe := func(version string) func(*Ledger) {
		return func(d *Ledger) {
			d.Observe(testKey, nil, object("A", version), event.CauseWatch, false, time.Unix(1, 0))
		}
	}
	remove := func(d *Ledger) { d.AddTombstone(testKey, event.Tombstone{UID: "A", Observed: time.Unix(1, 0)}) }
	acknowledge := func(version string) func(*Ledger) {
		return func(d *Ledger) {
			d.term.Acknowledge(testKey, live("A", version), object("A", version), wanted)
		}
	}
	acknowledgeDelete := func(d *Ledger) { d.term.Acknowledge(testKey, deleted("A", "9"), nil, wanted) }
	unanswered := func(sent event.Acked) func(*Ledger) { // of another form of the state on the bus
		return func(d *Ledger) { d.term.Unanswered(testKey, live("A", "1"), sent, nil, wanted) }
	}
	settle := func(d *Ledger) { d.term.Settle(testKey, live("A", "1"), wanted, "") }
	mark := (func(*Ledger))(nil)
	tests := map[string]struct {
		steps   []func(*Ledger)
		reached []bool // each mark, at the end
	}{
		"nothing":                             {[]func(*Ledger){mark}, []bool{true}},
		"a change":                            {[]func(*Ledger){observe("1"), mark}, []bool{false}},
		"a change on the bus":                 {[]func(*Ledger){observe("1"), mark, acknowledge("1")}, []bool{true}},
		"a later change":                      {[]func(*Ledger){mark, observe("1")}, []bool{true}},
		"an earlier state on the bus":         {[]func(*Ledger){observe("1"), observe("2"), mark, acknowledge("1")}, []bool{false}},
		"an earlier state, before the mark":   {[]func(*Ledger){observe("1"), mark, observe("2"), mark, acknowledge("1")}, []bool{false, false}},
		"a state after the mark":              {[]func(*Ledger){observe("1"), mark, observe("2"), observe("3"), acknowledge("2")}, []bool{true}},
		"a state between two marks":           {[]func(*Ledger){observe("1"), mark, observe("2"), mark, observe("3"), acknowledge("2")}, []bool{false, false}},
		"a state after two marks":             {[]func(*Ledger){observe("1"), mark, observe("2"), mark, observe("3"), observe("4"), acknowledge("3")}, []bool{true, true}},
		"a delete":                            {[]func(*Ledger){remove, mark}, []bool{false}},
		"a delete on the bus":                 {[]func(*Ledger){remove, mark, acknowledgeDelete}, []bool{true}},
		"a delete after a state on the bus":   {[]func(*Ledger){observe("1"), mark, remove, acknowledgeDelete}, []bool{true}},
		"a delete, and a state before it":     {[]func(*Ledger){observe("1"), remove, mark, observe("2")}, []bool{false}},
		"a state that is abandoned":           {[]func(*Ledger){observe("1"), mark, func(d *Ledger) { d.Abandon(func(k event.Key) bool { return k == testKey }, showsNothing) }}, []bool{true}},
		"a change of another object":          {[]func(*Ledger){observe("1"), func(d *Ledger) { d.MarkOutlived(other, event.Outlived{Position: 7}, time.Unix(1, 0)) }, mark, acknowledge("1")}, []bool{false}},
		"a state that cannot be published":    {[]func(*Ledger){observe("1"), func(d *Ledger) { d.MarkUnpublishable(testKey) }, mark}, []bool{false}},
		"another form, unanswered":            {[]func(*Ledger){observe("1"), mark, unanswered(message("A", "1"))}, []bool{false}},
		"another form, refused":               {[]func(*Ledger){observe("1"), mark, unanswered(event.Acked{})}, []bool{false}},
		"another form, then acknowledged":     {[]func(*Ledger){observe("1"), mark, unanswered(message("A", "1")), acknowledge("1")}, []bool{true}},
		"another form, no longer due":         {[]func(*Ledger){observe("1"), mark, unanswered(event.Acked{}), settle}, []bool{true}},
		"a version that cannot be compared":   {[]func(*Ledger){observe("x"), mark, observe("y"), acknowledge("z")}, []bool{false}},
		"an object that is deleted and there": {[]func(*Ledger){observe("1"), remove, observe("2"), mark, acknowledgeDelete}, []bool{false}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newLedger()
			var marks []Mark
			for _, step := range tt.steps {
				if step == nil {
					marks = append(marks, d.Mark(testResource.GroupResource()))
					continue
				}
				step(d)
			}
			for i, m := range marks {
				if got := d.Reached(m); got != tt.reached[i] {
					t.Errorf("mark %d: reached is %t, want %t", i, got, tt.reached[i])
				}
			}
			if entries := d.DirtyByResource()[testResource.GroupResource()]; entries != d.DirtyLen() {
				t.Errorf("%d entries are counted, there are %d", entries, d.DirtyLen())
			}
		})
	}
}

func TestSince(t *testing.T) {
	d, start := newLedger(), time.Unix(1000, 0)
	if _, dirty := d.DirtySince(testKey); dirty {
		t.Error("a key is dirty before a change")
	}
	d.Observe(testKey, nil, object("a", "1"), event.CauseWatch, false, start)
	d.Observe(testKey, nil, object("a", "2"), event.CauseWatch, false, start.Add(time.Minute))
	if since, dirty := d.DirtySince(testKey); !dirty || !since.Equal(start) {
		t.Errorf("got %s, %t, want %s", since, dirty, start)
	}
	d.term.Settle(testKey, live("a", "2"), wanted, "")
	if since, dirty := d.DirtySince(testKey); dirty {
		t.Errorf("settled: got %s", since)
	}
}

func TestBetween(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	d := newLedger()
	for second, name := range []string{"a", "b", "c", "d"} {
		d.Observe(testResource.Key("default", name), nil, object(name, "1"), event.CauseWatch, false, at(int64(10*second)))
	}
	for _, c := range []struct {
		from, to int64
		want     int
	}{{0, 100, 4}, {10, 20, 2}, {11, 19, 0}, {31, 40, 0}} {
		if got := d.Between(at(c.from), at(c.to)); got != c.want {
			t.Errorf("between %d and %d: got %d, want %d", c.from, c.to, got, c.want)
		}
	}
	d.term.Settle(testResource.Key("default", "b"), live("b", "1"), wanted, "")
	if got := d.Between(at(10), at(20)); got != 1 {
		t.Errorf("after an acknowledgement: got %d, want 1", got)
	}
}

package tail

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

// asChange returns the event in the data format of KUBERELAY_DATA=change.
func asChange(e Event, previous, patch string) Event {
	m := *e.Message
	m.Attributes = append(append([]event.Attribute(nil), m.Attributes...), event.Attribute{Name: "dataschema", Value: event.SchemaChange})
	m.Data = fmt.Appendf(nil, `{"object":%s,"previous":%s,"patch":%s}`, m.Data, previous, patch)
	e.Message = &m
	return e
}

func rest(n int) string { return fmt.Sprintf(`,"spec":{"n":%d}`, n) }

// TestStates verifies the change that States returns for each event of a sequence.
func TestStates(t *testing.T) {
	truncated := func(c *event.Change) { c.Truncated = true }
	replacement := change(t, event.Updated, deployments, "shop", "cart", "2", func(c *event.Change) {
		c.Object.UID = "another"
		c.Object.Body = event.JSON([]byte(`{"metadata":{"uid":"another"}}`))
	})
	object := func(n int) string {
		return string(state(t, event.Updated, fmt.Sprint(n), rest(n)).Message.Data)
	}
	updated := func(n int, changes ...func(*event.Change)) Event {
		return state(t, event.Updated, fmt.Sprint(n), rest(n), changes...)
	}
	type step struct {
		event Event
		want  Change
	}
	raw := func(s string) json.RawMessage {
		if s == "" {
			return nil
		}
		return json.RawMessage(s)
	}
	is := func(object, previous, patch string) Change {
		return Change{Object: raw(object), Previous: raw(previous), Patch: raw(patch)}
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"the one before", []step{{updated(1), is(object(1), "", "")}, {updated(2), is(object(2), object(1), "")}, {updated(3), is(object(3), object(2), "")}}},
		{"of another cluster", []step{{updated(1).of("staging"), is(object(1), "", "")}, {updated(2), is(object(2), "", "")}}},
		{"a part is no state", []step{{updated(1), is(object(1), "", "")}, {updated(2, truncated), Change{}}, {updated(3), is(object(3), "", "")}}},
		{"after a delete", []step{
			{updated(1), is(object(1), "", "")},
			{state(t, event.Deleted, "2", rest(2)), is(object(2), object(1), "")},
			{updated(3), is(object(3), "", "")},
		}},
		{"an unknown final state", []step{{updated(1), is(object(1), "", "")}, {state(t, event.Deleted, "2", "", func(c *event.Change) { c.Truncated = true }), Change{}}, {updated(3), is(object(3), "", "")}}},
		{"another of its name", []step{{updated(1), is(object(1), "", "")}, {replacement, is(`{"metadata":{"uid":"another"}}`, "", "")}}},
		{"the event knows", []step{
			{updated(1), is(object(1), "", "")},
			{asChange(updated(3), object(2), `[{"op":"remove","path":"/x"}]`), is(object(3), object(2), `[{"op":"remove","path":"/x"}]`)},
			{updated(4), is(object(4), object(3), "")},
			{asChange(updated(5), "null", "null"), is(object(5), object(4), "")},
		}},
		{"a marker", []step{{marker(t, event.SnapshotStarted, deployments, 0), Change{}}, {updated(1), is(object(1), "", "")}}},
		{"of another writer", []step{{foreign("t", "s"), Change{}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewStates()
			for n, step := range tc.steps {
				got := s.Change(step.event)
				if told(got) != told(step.want) {
					t.Errorf("event %d: got %s, want %s", n, told(got), told(step.want))
				}
			}
		})
	}
	e := change(t, event.Deleted, deployments, "shop", "cart", "2", func(c *event.Change) { c.Object.Body = event.Body{} })
	if e.Message.Attribute("finalstateunknown") != "true" {
		t.Fatal("the final state is known")
	}
	if got := NewStates().Change(e); got.Object != nil {
		t.Errorf("an identity is no state: %s", told(got))
	}
}

func told(c Change) string { return fmt.Sprintf("%s, before %s, by %s", c.Object, c.Previous, c.Patch) }

// TestStatesAsk verifies that States calls Ask once for each object, and only for an update whose
// previous state is unknown.
func TestStatesAsk(t *testing.T) {
	before := state(t, event.Updated, "1", rest(1)).Message
	var asked []string
	s := NewStates()
	s.Ask = func(e Event) *event.Message {
		asked = append(asked, e.Subject)
		return before
	}
	second := state(t, event.Updated, "2", rest(2))
	second.Subject = "first"
	if c := s.Change(second); string(c.Previous) != string(before.Data) {
		t.Errorf("got %s", told(c))
	}
	second.Subject = "again"
	s.Change(second)
	other := second.of("staging")
	other.Subject = "other"
	if c := s.Change(asChange(other, `{"a":1}`, "[]")); string(c.Previous) != `{"a":1}` {
		t.Errorf("got %s", told(c))
	}
	kept := second.of("kept")
	s.Keep(state(t, event.Updated, "1", rest(7)).of("kept"))
	if c := s.Change(kept); !strings.Contains(string(c.Previous), `"n":7`) {
		t.Errorf("got %s", told(c))
	}
	s.Forget("kept", kept.Message.Key)
	before = state(t, event.Deleted, "1", rest(1)).Message
	if c := s.Change(kept); c.Previous != nil {
		t.Errorf("a delete is no state: %s", told(c))
	}
	for _, shown := range []event.Type{event.Created, event.Deleted} { // before the fix, States also asked for these, although they have no diff
		s.Change(state(t, shown, "1", rest(1)).of(string(shown)))
	}
	if got := fmt.Sprint(asked); got != "[first again]" {
		t.Errorf("asked %s", got)
	}
}

// TestStatesLast verifies that with Last, the first event of an object is its current state, and that
// the next event has a previous state.
func TestStatesLast(t *testing.T) {
	s := NewStates()
	s.Last = true
	if c := s.Change(state(t, event.Updated, "1", rest(1))); !c.Present {
		t.Errorf("got %+v", c)
	}
	if c := s.Change(state(t, event.Updated, "2", rest(2))); c.Present || c.Previous == nil {
		t.Errorf("got %+v", c)
	}
}

// TestStatesMemory verifies that similar objects take little memory, and that the kept state equals
// the object byte for byte.
func TestStatesMemory(t *testing.T) {
	s, total := NewStates(), 0
	const objects = 1000
	text := func(n int) string {
		return fmt.Sprintf(`,"spec":{"n":%d,"text":%q}`, n, strings.Repeat("what all of them have in common ", 50))
	}
	event1 := func(n int) Event { return state(t, event.Updated, "1", text(n)).of(fmt.Sprint("cluster-", n)) }
	for n := range objects {
		s.Keep(event1(n))
	}
	for _, k := range s.last {
		total += k.body.Size()
	}
	if whole := objects * len(event1(0).Message.Data); total*5 > whole {
		t.Errorf("%d bytes kept of %d", total, whole)
	}
	for n := range objects {
		if c := s.Change(event1(n)); string(c.Previous) != string(c.Object) {
			t.Fatalf("got %s, want %s", c.Previous, c.Object)
		}
	}
}

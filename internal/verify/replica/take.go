package replica

import (
	"maps"
	"slices"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/verify/normal"
	"github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// take accepts the next message. read parses the event in it.
func (f *Follower) take(d publish.Delivery, read func() (wire.Event, error)) error {
	a, err := f.place.address(d)
	if err != nil {
		f.takeForeign(event.Key{}, d, err)
		return nil
	}
	m, err := read()
	if err != nil {
		f.takeForeign(keyOf(a), d, err)
		return nil
	}
	if a.Kind != wire.OfObject {
		return f.takeMarker(m, a, d)
	}
	e, problems, err := f.place.read(m, a, d)
	if err != nil {
		f.takeForeign(e.Key, d, err)
		return nil
	}
	end := f.ends[e.Key]
	elsewhere := publish.Partition(d.Position) != publish.Partition(end) // the events of an object belong in one partition, but might be in several
	if d.Position >= end || elsewhere || normal.IsSecret(e.Key.GroupResource().String()) {
		problems = append(problems, readData(f.form, &e, m)...)
	}
	return f.advance(d, func() error { return f.history.add(e, problems) })
}

// keyOf returns the object that an address names, or the zero value for a marker.
func keyOf(a wire.Address) event.Key {
	if a.Kind != wire.OfObject {
		return event.Key{}
	}
	return event.Key(a.Object)
}

// takeMarker accepts a marker of a resource, a writer, or the cluster.
func (f *Follower) takeMarker(m wire.Event, a wire.Address, d publish.Delivery) error {
	problems := f.place.readMarker(m, a)
	claim, claimErr := wire.ParseClaim(m.Data)
	point, pointErr := wire.ParsePoint(m)
	return f.advance(d, func() error {
		f.history.addMarker(event.Key(a.Object), d.Subject, m.Get("id"), d.Position, problems)
		switch {
		case a.Kind == wire.OfClaim && claimErr == nil && len(problems) == 0:
			f.history.claim = claim.UID
		case a.Kind == wire.OfResolved && pointErr == nil && len(problems) == 0:
			f.history.points.add(point, d.Log.Partition, d.Stored)
		}
		return nil
	})
}

// takeForeign accepts a message that isn't an event. k is the object that its subject or key names,
// or the zero value if unknown.
func (f *Follower) takeForeign(k event.Key, d publish.Delivery, err error) {
	name := f.place.name(d.Subject)
	f.keep(f.advance(d, func() error {
		f.history.addForeign(k, name, d.Position, err)
		if d.Position < f.ends[k] {
			return nil
		}
		return f.readLast(k)
	}))
}

// readLast reads the data of an object's last event if take skipped it. take skips the data of an event
// if, when reading began, a later message appeared to be an event of the object.
func (f *Follower) readLast(k event.Key) error {
	e := f.history.state(k)
	if !e.Live() || e.Digest != (normal.Digest{}) {
		return nil
	}
	m, found, err := f.at(k, e.Position)
	if err != nil || !found {
		return err
	}
	for _, p := range readData(f.form, &e, m) {
		f.history.report(e, report.Malformed, p)
	}
	last := &f.history.objects[k].last
	last.Digest, last.Content = e.Digest, e.Content
	return nil
}

// takeRefused accepts records that cannot be read.
func (f *Follower) takeRefused(d publish.Delivery, err error) {
	f.change(func() { f.history.addForeign(event.Key{}, "a record", d.Position, err) })
}

// takeTombstone accepts a record without a value.
func (f *Follower) takeTombstone(k event.Key, d publish.Delivery) {
	f.keep(f.advance(d, func() error { return f.history.addTombstone(k, d.Position, d.Whole) }))
}

// keep stores an error for the goroutines that wait for messages.
func (f *Follower) keep(err error) {
	if err != nil {
		f.change(func() { f.ended = err })
	}
}

// advance calls add for a message, and makes the messages up to its position visible to other
// goroutines. It returns [ErrChanged] if the position is not higher than the last one.
func (f *Follower) advance(d publish.Delivery, add func() error) (err error) {
	f.change(func() {
		if d.Position <= f.read[d.Log] {
			err = ErrChanged
			return
		}
		if err = add(); err == nil {
			f.read[d.Log] = d.Position
		}
	})
	return err
}

// projectedDigest is the number of digits in the digest of an object that is published in part.
const projectedDigest = 32

// readData sets e.Digest and e.Content from the event's data, and returns the problems that it finds
// in the data.
func readData(f normal.Form, e *Event, m wire.Event) (problems complaints) {
	t, err := m.ObjectOf()
	if err != nil {
		return []string{err.Error()}
	}
	metadata, _ := t["metadata"].(wire.Tree)
	for _, check := range []struct{ field, want string }{
		{"name", e.Key.Name}, {"namespace", e.Key.Namespace}, {"uid", e.UID}, {"resourceVersion", e.Version},
	} {
		if got, _ := metadata[check.field].(string); got != check.want {
			problems.add("metadata.%s of the data is %q, want %q", check.field, got, check.want)
		}
	}
	for _, name := range []string{"apiVersion", "kind"} {
		if got, _ := t[name].(string); got != m.Get(strings.ToLower(name)) {
			problems.add("%s of the data is %q, want %q", name, got, m.Get(strings.ToLower(name)))
		}
	}
	problems = append(problems, checkChange(m, e, t)...)
	unknown := m.Get("finalstateunknown") == "true"
	if unknown && e.Live() {
		problems.add("an event of type %s has finalstateunknown", e.Type.Short())
	}
	named, whole := m.Get("digest"), !e.Truncated && !unknown
	if !whole {
		others := maps.Clone(t)
		maps.DeleteFunc(others, func(name string, _ any) bool { return name == "apiVersion" || name == "kind" || name == "metadata" })
		if len(others) > 0 {
			problems.add("the data of a partial object has the field %q", slices.Min(slices.Collect(maps.Keys(others))))
		}
	}
	if len(named) != projectedDigest { // a text digest, which can differ for equal data
		named = ""
	}
	if named != "" && whole {
		if is, err := wire.Digest(t); err != nil || is != named {
			problems.add("digest is %q, that of the data is %q", named, is)
		}
	}
	plain := f.OfBus(e.Key.GroupResource().String(), t)
	if normal.IsSecret(e.Key.GroupResource().String()) {
		for _, other := range m.OthersOf() {
			plain = f.OfBus(e.Key.GroupResource().String(), other) || plain
		}
	}
	if plain {
		problems.add("a value of the Secret is not redacted")
	}
	if !e.Live() {
		return problems
	}
	if e.Truncated {
		t = normal.MetadataOnly(t)
	}
	e.Digest = normal.DigestOf(t)
	hidden := normal.IsSecret(e.Key.GroupResource().String()) && f.Key == nil // another version might have another hidden value
	if named != "" || f.Contents && !hidden {
		e.Content = normal.ContentOf(t)
	}
	return problems
}

// checkChange returns the contradictions between the parts of a change: the object, its previous
// state, and the patch between them. Other data has none.
func checkChange(m wire.Event, e *Event, object wire.Tree) (problems complaints) {
	previous, patched, err := m.ChangeOf()
	problems.check("the data", err)
	if previous == nil {
		return problems
	}
	metadata, _ := previous["metadata"].(wire.Tree)
	switch {
	case e.Type != wire.Updated || e.Truncated:
		problems.add("an event of type %s has a previous state", e.Type.Short())
	case metadata["uid"] != e.UID || metadata["resourceVersion"] != e.Previous:
		problems.add("the previous state has uid %q and resourceVersion %q, want %q and %q", metadata["uid"], metadata["resourceVersion"], e.UID, e.Previous)
	case normal.DigestOf(patched) != normal.DigestOf(object):
		problems.add("the patch does not turn the previous state into the object")
	}
	return problems
}

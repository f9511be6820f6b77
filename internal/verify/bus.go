package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// source brings what is on a bus to a follower.
type source interface {
	// lasts yields the position of each object's last message.
	lasts(ctx context.Context, each func(event.Key, uint64)) error
	// run brings what comes, on a bus that does so unasked, until ctx ends.
	run(ctx context.Context, f *follower)
	// catchUp brings all that is on the bus when it is called. CatchUpWith brings at
	// least what is there of one object, and tells whether there was any.
	catchUp(ctx context.Context, f *follower) error
	catchUpWith(ctx context.Context, f *follower, k event.Key) (more bool, err error)
	// At reads the message of an object at a position.
	At(ctx context.Context, k event.Key, position uint64) (publish.Stored, error)
	// report says how far the bus has been read. Positions in the report are as
	// people want them from then on.
	report(r *Report)
	Close() error
}

var errChanged = errors.New("the bus lost messages, or was made anew, while it was read; verify again")

// follower reads the stream from its start and goes on for as long as it runs.
type follower struct {
	bus   source
	place place
	form  form

	// ends is where each object's last message was before reading began. Of those
	// before it the data need not be looked at.
	ends map[event.Key]uint64

	mu      sync.Mutex
	history *history
	read    map[publish.Log]uint64 // everything up to it has been read
	moved   chan struct{}          // closed at each change
	trouble error                  // why nothing comes, nil if all is well
	ended   error                  // why run ended
}

func newFollower(bus source, p place, f form, depth int, retention time.Duration) *follower {
	return &follower{
		bus: bus, place: p, form: f, ends: map[event.Key]uint64{}, read: map[publish.Log]uint64{}, moved: make(chan struct{}),
		history: &history{
			depth: depth, retention: retention, now: time.Now, show: decimal,
			objects: map[event.Key]*object{}, markers: map[string]string{},
		},
	}
}

func decimal(position uint64) string { return strconv.FormatUint(position, 10) }

// askWith makes the history ask the bus under ctx.
func (f *follower) askWith(ctx context.Context) {
	f.history.kept = func(k event.Key, position uint64) (bool, error) {
		s, err := f.bus.At(ctx, k, position)
		return s.Acked.Position != 0, err
	}
}

// run reads until ctx ends or the bus cannot be read.
func (f *follower) run(ctx context.Context) { f.bus.run(ctx, f) }

func (f *follower) catchUp(ctx context.Context) error { return f.bus.catchUp(ctx, f) }

func (f *follower) catchUpWith(ctx context.Context, k event.Key) error {
	_, err := f.bus.catchUpWith(ctx, f, k)
	return err
}

// change changes what others wait for.
func (f *follower) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.moved)
	f.moved = make(chan struct{})
}

// take is given each message by Subscribe.
func (f *follower) take(m *event.Message, d publish.Delivery) error {
	if m.Marker {
		return f.advance(d, func() error {
			f.history.addMarker(m.Key, d.Subject, m.ID, event.Type(m.Attribute("type")), d.Position)
			if c, err := event.ClaimFrom(m); err == nil {
				f.history.claim = c.UID
			}
			return nil
		})
	}
	e, problems, err := f.place.read(m, d)
	if err != nil {
		f.takeForeign(d, err)
		return nil
	}
	end := f.ends[m.Key]
	elsewhere := publish.Partition(d.Position) != publish.Partition(end) // an object should be in one, and may not be
	if d.Position >= end || elsewhere || isSecret(m.Key.GroupResource().String()) {
		problems = append(problems, f.form.readData(&e, m)...)
	}
	return f.advance(d, func() error { return f.history.add(e, problems) })
}

// takeForeign takes a message that is no event.
func (f *follower) takeForeign(d publish.Delivery, err error) {
	k, name := f.place.key(d.Subject), f.place.name(d.Subject)
	f.keep(f.advance(d, func() error { f.history.addForeign(k, name, d.Position, err); return nil }))
}

// takeTombstone takes a record without a value.
func (f *follower) takeTombstone(k event.Key, d publish.Delivery) {
	f.keep(f.advance(d, func() error { f.history.addTombstone(k, d.Position); return nil }))
}

// keep keeps an error for whoever waits.
func (f *follower) keep(err error) {
	if err != nil {
		f.change(func() { f.ended = err })
	}
}

// advance lets others see the bus up to a delivery.
func (f *follower) advance(d publish.Delivery, add func() error) (err error) {
	f.change(func() {
		if d.Position <= f.read[d.Log] {
			err = errChanged
			return
		}
		if err = add(); err == nil {
			f.read[d.Log] = d.Position
		}
	})
	return err
}

// readData fills in the digests of an event's data, and gives what is wrong with it.
func (f form) readData(e *busEvent, m *event.Message) (problems []string) {
	data, err := event.ObjectIn(m.Attribute, m.Data)
	if err != nil {
		return []string{err.Error()}
	}
	t, err := decode(data)
	if err != nil {
		return []string{err.Error()}
	}
	metadata, _ := t["metadata"].(tree)
	for _, check := range []struct{ field, want string }{
		{"name", e.Key.Name}, {"namespace", e.Key.Namespace}, {"uid", e.UID}, {"resourceVersion", e.Version},
	} {
		if got, _ := metadata[check.field].(string); got != check.want {
			problems = append(problems, fmt.Sprintf("metadata.%s of the data is %q, should be %q", check.field, got, check.want))
		}
	}
	named := m.Attribute("digest")
	if whole := !e.Truncated && m.Attribute("finalstateunknown") != "true"; named != "" && whole {
		if is, err := event.DigestOf(event.JSON(data)); err != nil || is.String() != named {
			problems = append(problems, fmt.Sprintf("digest is %q, that of the data is %q", named, is))
		}
	}
	f.ofBus(e.Key, t)
	if isSecret(e.Key.GroupResource().String()) && hasPlainValue(t) {
		problems = append(problems, "a value of the Secret is on the bus as it is")
	}
	if !e.live() {
		return problems
	}
	if e.Truncated {
		t = metadataOnly(t)
	}
	e.Digest = digestOf(t)
	hidden := isSecret(e.Key.GroupResource().String()) && f.key == nil // another version may be another value
	if named != "" || f.contents && !hidden {
		e.Content = contentOf(t)
	}
	return problems
}

// resolveDoubts reads every object in doubt until its doubts are excused or its
// last message has been read, and then decides.
func (f *follower) resolveDoubts(ctx context.Context) error {
	f.mu.Lock()
	upTo := uint64(0)
	for _, position := range f.read {
		upTo = max(upTo, position)
	}
	f.mu.Unlock()
	for {
		open := f.openDoubts(upTo)
		waiting := false
		for _, k := range open {
			more, err := f.bus.catchUpWith(ctx, f, k)
			if err != nil {
				return err
			}
			waiting = waiting || more
		}
		if !waiting {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history.settleDoubts(upTo)
	return nil
}

func (f *follower) openDoubts(upTo uint64) []event.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	var keys []event.Key
	seen := map[event.Key]bool{}
	for _, d := range f.history.doubts {
		if d.problem.Position <= upTo && !seen[d.key] && !f.history.excused(d) {
			seen[d.key] = true
			keys = append(keys, d.key)
		}
	}
	return keys
}

// mark notes that a listing has found an object, and gives its last event.
func (f *follower) mark(k event.Key, listing uint32) busEvent {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.history.objects[k]; o != nil {
		o.mark = listing
	}
	return f.history.state(k)
}

// state gives the last event of an object.
func (f *follower) state(k event.Key) busEvent {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.history.state(k)
}

// live calls each for every object that the bus shows as existing, with its mark.
// Each is called without the lock.
func (f *follower) live(each func(k event.Key, mark uint32)) {
	type marked struct {
		key  event.Key
		mark uint32
	}
	var all []marked
	f.mu.Lock()
	for k, o := range f.history.objects {
		if o.last.live() {
			all = append(all, marked{k, o.mark})
		}
	}
	f.mu.Unlock()
	for _, m := range all {
		each(m.key, m.mark)
	}
}

// claim gives the UID of the cluster whose the name is, "" if the bus does not say.
func (f *follower) claim() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.history.claim
}

func (f *follower) watch(k event.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history.watch(k)
}

func (f *follower) unwatch(k event.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.history.objects[k]
	o.watched, o.recent = false, nil
}

// glimpses gives the bus's half of a look at some watched objects.
func (f *follower) glimpses(of map[event.Key]*candidate) map[event.Key]*glimpse {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[event.Key]*glimpse, len(of))
	for k := range of {
		o := f.history.objects[k]
		all[k] = &glimpse{bus: f.history.state(k), recent: slices.Clone(o.recent), lastDeleted: o.lastDeleted}
	}
	return all
}

// report fills in what the stream alone tells.
func (f *follower) report(r *Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Messages, r.Position = f.history.messages, f.read[publish.Log{}]
	r.Problems = append(r.Problems, f.history.problems...)
}

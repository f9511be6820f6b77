package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
)

// stream is what is asked of the bus.
type stream interface {
	// Subscribe brings every message.
	Subscribe(ctx context.Context, o nats.SubscribeOptions, yield func(*event.Message, nats.Delivery) error) error
	// Load, Last and At say what the stream holds at this moment: of all objects,
	// of one, and at one position.
	Load(ctx context.Context, yield func(event.Key, event.Acked) error) error
	Last(ctx context.Context, k event.Key) (publish.Stored, error)
	At(ctx context.Context, k event.Key, position uint64) (publish.Stored, error)
}

var _ stream = (*nats.Bus)(nil)

const (
	busPatience = 15 * time.Second // without a message, before it is held to be unreachable
	askAgain    = time.Second      // what the end of the stream is, while waiting for it
)

var errChanged = errors.New("the stream lost messages, or was made anew, while it was read; verify again")

// follower reads the stream from its start and goes on for as long as it runs.
type follower struct {
	bus   stream
	place place
	form  form

	// ends is where each object's last message was before reading began. Of those
	// before it the data need not be looked at.
	ends map[event.Key]uint64

	mu       sync.Mutex
	history  *history
	position uint64        // everything up to it has been read
	moved    chan struct{} // closed at each change
	trouble  error         // why nothing comes, nil if all is well
	ended    error         // why run ended
}

func newFollower(bus stream, p place, f form, depth int, retention time.Duration) *follower {
	return &follower{
		bus: bus, place: p, form: f, ends: map[event.Key]uint64{}, moved: make(chan struct{}),
		history: &history{
			depth: depth, retention: retention, now: time.Now,
			objects: map[event.Key]*object{}, markers: map[string]string{},
		},
	}
}

// run reads until ctx ends or the bus cannot be read.
func (f *follower) run(ctx context.Context) {
	f.history.kept = func(k event.Key, position uint64) (bool, error) {
		s, err := f.bus.At(ctx, k, position)
		return s.Acked.Position != 0, err
	}
	err := f.bus.Subscribe(ctx, nats.SubscribeOptions{
		From:    nats.FromStart,
		Notify:  func(err error) { f.change(func() { f.trouble = err }) },
		Foreign: f.takeForeign,
	}, f.take)
	f.change(func() {
		if f.ended == nil {
			f.ended = err
		}
	})
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
func (f *follower) take(m *event.Message, d nats.Delivery) error {
	if m.Marker {
		return f.advance(d, func() error {
			f.history.addMarker(m.Key, d.Subject, m.ID, event.Type(m.Attribute("type")), d.Position)
			return nil
		})
	}
	e, problems, err := f.place.read(m, d)
	if err != nil {
		f.takeForeign(d, err)
		return nil
	}
	if d.Position >= f.ends[m.Key] || isSecret(m.Key.GroupResource().String()) {
		var more []string
		e.Digest, more = f.form.readData(e, m.Data)
		problems = append(problems, more...)
	}
	return f.advance(d, func() error { return f.history.add(e, problems) })
}

// takeForeign takes a message that is no event.
func (f *follower) takeForeign(d nats.Delivery, err error) {
	_, _, key, _, parseErr := event.ParseSubject(d.Subject)
	if parseErr != nil {
		key = event.Key{}
	}
	failure := f.advance(d, func() error { f.history.addForeign(key, d.Subject, d.Position, err); return nil })
	if failure != nil {
		f.change(func() { f.ended = failure })
	}
}

// advance lets others see the stream up to a delivery.
func (f *follower) advance(d nats.Delivery, add func() error) (err error) {
	f.change(func() {
		if d.Position <= f.position {
			err = errChanged
			return
		}
		if err = add(); err == nil {
			f.position = d.Position
		}
	})
	return err
}

// readData gives the digest of an event's data and what is wrong with it.
func (f form) readData(e busEvent, data []byte) (d digest, problems []string) {
	t, err := decode(data)
	if err != nil {
		return d, []string{err.Error()}
	}
	metadata, _ := t["metadata"].(tree)
	for _, check := range []struct{ field, want string }{
		{"name", e.Key.Name}, {"namespace", e.Key.Namespace}, {"uid", e.UID}, {"resourceVersion", e.Version},
	} {
		if got, _ := metadata[check.field].(string); got != check.want {
			problems = append(problems, fmt.Sprintf("metadata.%s of the data is %q, should be %q", check.field, got, check.want))
		}
	}
	f.ofBus(e.Key, t)
	if isSecret(e.Key.GroupResource().String()) && hasPlainValue(t) {
		problems = append(problems, "a value of the Secret is on the bus as it is")
	}
	switch {
	case !e.live():
		return d, problems
	case e.Truncated:
		return digestOf(metadataOnly(t)), problems
	}
	return digestOf(t), problems
}

// end asks the bus for the position of the last message of any object, and with
// each for that of every object whose last message is an event.
func (f *follower) end(ctx context.Context, each func(event.Key, uint64)) (end uint64, err error) {
	err = f.bus.Load(ctx, func(k event.Key, a event.Acked) error {
		end = max(end, a.Position)
		if each != nil && a.UID != "" {
			each(k, a.Position)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read the bus: %w", err)
	}
	return end, nil
}

// catchUp waits until everything has been read that was on the bus when it was
// called.
func (f *follower) catchUp(ctx context.Context) error {
	return f.await(ctx, func(ctx context.Context) (func() bool, error) {
		end, err := f.end(ctx, nil)
		return func() bool { return f.position >= end }, err
	})
}

// catchUpWith does the same for one object alone, which is cheaper.
func (f *follower) catchUpWith(ctx context.Context, k event.Key) error {
	return f.await(ctx, func(ctx context.Context) (func() bool, error) {
		last, err := f.bus.Last(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("read the bus: %w", err)
		}
		return func() bool { return f.position >= last.Acked.Position }, nil
	})
}

// await waits for what aim says. What is waited for may be removed from the bus
// before it is read, so aim is asked again from time to time.
func (f *follower) await(ctx context.Context, aim func(context.Context) (reached func() bool, err error)) error {
	progress, since := uint64(0), time.Now()
	for {
		reached, err := aim(ctx)
		if err != nil {
			return err
		}
		again := time.NewTimer(askAgain)
		for waiting := true; waiting; {
			f.mu.Lock()
			done, ended, position, moved := reached(), f.ended, f.position, f.moved
			f.mu.Unlock()
			switch {
			case ended != nil:
				again.Stop()
				return fmt.Errorf("read the bus: %w", ended)
			case done:
				again.Stop()
				return nil
			case position != progress:
				progress, since = position, time.Now()
			}
			select {
			case <-moved:
			case <-again.C:
				waiting = false
			case <-ctx.Done():
				again.Stop()
				return ctx.Err()
			}
		}
		if time.Since(since) > busPatience {
			return f.silence()
		}
	}
}

func (f *follower) silence() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble != nil {
		return fmt.Errorf("read the bus: %w", f.trouble)
	}
	return fmt.Errorf("read the bus: nothing came for %s after position %d", busPatience, f.position)
}

// resolveDoubts reads every object in doubt until its doubts are excused or its
// last message has been read, and then decides.
func (f *follower) resolveDoubts(ctx context.Context) error {
	f.mu.Lock()
	upTo := f.position
	f.mu.Unlock()
	for {
		open := f.openDoubts(upTo)
		waiting := false
		for _, k := range open {
			behind, err := f.readOn(ctx, k)
			if err != nil {
				return err
			}
			waiting = waiting || behind
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

// readOn tells whether an object has messages that had not been read, and waits
// for them.
func (f *follower) readOn(ctx context.Context, k event.Key) (bool, error) {
	last, err := f.bus.Last(ctx, k)
	if err != nil {
		return false, fmt.Errorf("read the bus: %w", err)
	}
	f.mu.Lock()
	behind := f.position < last.Acked.Position
	f.mu.Unlock()
	if !behind {
		return false, nil
	}
	return true, f.catchUpWith(ctx, k)
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
	r.Messages, r.Position = f.history.messages, f.position
	r.Problems = append(r.Problems, f.history.problems...)
}

package informers

import (
	"context"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
)

// term is a time in which keys are handed out.
type term struct {
	ctx     context.Context // ends with it
	end     context.CancelFunc
	running sync.WaitGroup // what writes in it
}

// terms tells every resource whether it is to take part in one.
type terms struct {
	mu      sync.Mutex
	current *term         // nil at rest
	changed chan struct{} // closed when current changes
}

func newTerms() *terms { return &terms{changed: make(chan struct{})} }

// join gives the present term, nil at rest, and what is closed when that changes. Of a
// term running has one more.
func (t *terms) join() (now *term, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		t.current.running.Add(1)
	}
	return t.current, t.changed
}

// set gives the one before.
func (t *terms) set(to *term) *term {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.current
	t.current = to
	close(t.changed)
	t.changed = make(chan struct{})
	return before
}

func (t *terms) resting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current == nil
}

// Lead has a Set that was made for [Config.Standby] hand out keys from now on: first all
// that it knows of, as if it had been started now. What the bus has must have been told
// by [Set.RaiseEpoch] before. It does not block.
func (s *Set) Lead() {
	t := &term{}
	t.ctx, t.end = context.WithCancel(context.Background())
	s.terms.set(t)
}

// Rest ends that. When it returns nothing of ours writes a marker or hands out a key any
// more. Informers go on.
func (s *Set) Rest() {
	before := s.terms.set(nil)
	if before == nil {
		return
	}
	before.end()
	before.running.Wait()
	s.eachWatched(func(w *watched) { w.snapshot.reset() })
	s.dirty.forgetFirstSyncs()
}

// enqueue hands out a key, unless its resource takes part in no term: then all its keys
// will be, when one begins.
func (s *Set) enqueue(k event.Key) {
	if s.takesPart(k) {
		s.config.Enqueue(k)
	}
}

// enqueueBehind is that of a key that can wait for all others.
func (s *Set) enqueueBehind(k event.Key) {
	if s.takesPart(k) {
		s.config.EnqueueBehind(k)
	}
}

func (s *Set) takesPart(k event.Key) bool {
	if !s.config.Standby {
		return true
	}
	w := s.watchedFor(k.GroupResource())
	return w == nil || w.snapshot.begun.Load()
}

// takePart has a resource take part in every term until ctx ends.
func (s *Set) takePart(ctx context.Context, w *watched) {
	for {
		now, changed := s.terms.join()
		if now != nil {
			s.partOf(ctx, now, w)
			now.running.Done()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (s *Set) partOf(ctx context.Context, t *term, w *watched) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	if s.epochIsDue() {
		return // of what is shown now some may be of a history that was given up: it is about to start anew
	}
	if !s.begin(ctx, w) {
		return
	}
	select {
	case <-ctx.Done():
	case <-w.first:
		s.finishSnapshot(ctx, w)
	}
}

// begin finds out whether this is a first sync, and hands out all keys of the resource.
// It returns false if ctx ends first.
func (s *Set) begin(ctx context.Context, w *watched) bool {
	if !s.beginSnapshot(ctx, w) {
		return false
	}
	s.includeInFirstSync(w) // before anybody can publish one of them
	w.snapshot.begun.Store(true)
	w.snapshot.once.Do(func() { close(w.snapshot.ever) })
	if !s.config.Standby || failpoint.Bug("forget-what-was-seen") {
		return true // nothing is there yet
	}
	s.includeInFirstSync(w) // what has come since its keys were last dropped
	for _, i := range w.all() {
		for _, name := range i.shared.GetStore().ListKeys() {
			s.config.EnqueueBehind(i.key(name))
		}
	}
	for _, k := range s.dirty.keysOf(w.groupResource()) {
		s.config.Enqueue(k) // it may be gone
	}
	s.config.Compare(w.groupResource())
	return true
}

// includeInFirstSync does for what was listed at rest what onAdd does for a list.
func (s *Set) includeInFirstSync(w *watched) {
	if w.snapshot.done.Load() || w.snapshot.synced.Load() {
		return
	}
	now := s.config.Now()
	for _, i := range w.all() {
		for _, name := range i.shared.GetStore().ListKeys() {
			k := i.key(name)
			if o := i.get(k); o != nil && !o.Unselected && s.selects(k) {
				s.dirty.include(k, o, now)
			}
		}
	}
}

// forgetOften forgets, at rest, what was seen longer ago than is worth remembering:
// whoever writes has published it, or the comparison with the bus will find it.
func (s *Set) forgetOften(ctx context.Context) {
	ticker := time.NewTicker(max(s.config.Remember/4, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if s.terms.resting() {
			s.dirty.forgetBefore(s.config.Now().Add(-s.config.Remember))
		}
	}
}

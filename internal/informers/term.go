package informers

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kuberelay/kuberelay/internal/event"
)

// term is the state of one leadership term, in which keys are enqueued.
type term struct {
	ctx     context.Context // ends with the term
	end     context.CancelFunc
	running sync.WaitGroup // resources that enqueue keys and write markers
}

// terms tells every resource when a term begins or ends.
type terms struct {
	mu      sync.Mutex
	current *term         // nil as a standby
	changed chan struct{} // closed when current changes
}

func newTerms() *terms { return &terms{changed: make(chan struct{})} }

// join returns the present term, nil as a standby, and a channel that is closed when that
// changes. The caller must call running.Done on the term.
func (t *terms) join() (now *term, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		t.current.running.Add(1)
	}
	return t.current, t.changed
}

// set returns the term before.
func (t *terms) set(to *term) *term {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.current
	t.current = to
	close(t.changed)
	t.changed = make(chan struct{})
	return before
}

func (t *terms) isStandby() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current == nil
}

// StartLeading makes a Set for [Config.Standby] enqueue keys from now on: first every key
// that it knows, as if it had started now. Call [Set.RaiseEpoch] with the epochs that the
// bus has before it. It does not block.
func (s *Set) StartLeading() {
	t := &term{}
	t.ctx, t.end = context.WithCancel(context.Background())
	s.terms.set(t)
}

// StopLeading ends that. When it returns, the Set no longer writes a marker or enqueues a
// key. Its informers go on.
func (s *Set) StopLeading() {
	before := s.terms.set(nil)
	if before == nil {
		return
	}
	before.end()
	before.running.Wait()
	s.eachWatched(func(w *watched) { w.snapshot.reset() })
	s.ledger.ForgetFirstSyncs()
}

// enqueue enqueues a key if its resource takes part in a term. Otherwise the next term
// enqueues all keys of the resource.
func (s *Set) enqueue(k event.Key) {
	if s.takesPart(k) {
		s.config.Enqueue(k)
	}
}

// EnqueueLowPriority does so as background work.
func (s *Set) EnqueueLowPriority(k event.Key) {
	if s.takesPart(k) {
		s.config.EnqueueLowPriority(k)
	}
}

func (s *Set) takesPart(k event.Key) bool {
	if !s.config.Standby {
		return true
	}
	w := s.watchedFor(k.GroupResource())
	return w == nil || w.snapshot.begun.Load()
}

// takePart makes a resource take part in every term until ctx ends.
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
	if s.epochIsDue(w) {
		return // the informers, which may show states of the history before, are about to start again
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

// begin finds out whether this is a first sync, and enqueues all keys of the resource. It
// returns false if ctx ends first.
func (s *Set) begin(ctx context.Context, w *watched) bool {
	if !s.beginSnapshot(ctx, w) {
		return false
	}
	s.includeInFirstSync(w) // before one of them can be published
	w.snapshot.begun.Store(true)
	w.snapshot.once.Do(func() { close(w.snapshot.ever) })
	if !s.config.Standby {
		return true // nothing is listed yet
	}
	s.includeInFirstSync(w) // the objects that came before the keys were enqueued
	for _, i := range w.all() {
		for _, name := range i.shared.GetStore().ListKeys() {
			s.config.EnqueueLowPriority(i.key(name))
		}
	}
	for _, k := range s.ledger.DirtyOf(w.groupResource()) {
		s.config.Enqueue(k) // the object may be gone
	}
	s.config.Compare(w.groupResource())
	return true
}

// includeInFirstSync does for the objects that a standby listed what onAdd does for a list.
func (s *Set) includeInFirstSync(w *watched) {
	if w.snapshot.done.Load() || w.snapshot.synced.Load() {
		return
	}
	now := s.config.Now()
	for _, i := range w.all() {
		for _, name := range i.shared.GetStore().ListKeys() {
			k := i.key(name)
			if o := i.get(k); o != nil && !o.Unselected && s.selects(k) {
				s.ledger.Include(k, o, now)
			}
		}
	}
}

// forgetOften makes a standby forget what it saw longer ago than [Config.Remember]: the
// leader has published it, or reconciliation finds it.
func (s *Set) forgetOften(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, max(s.config.Remember/4, time.Millisecond), false, func(context.Context) (bool, error) {
		if s.terms.isStandby() {
			s.ledger.ForgetBefore(s.config.Now().Add(-s.config.Remember))
		}
		return false, nil
	})
}

// Snapshots keeps the markers of first syncs on the bus. The sync of a resource is its first
// until the bus has a completed marker. The objects that it finds existed before the
// forwarder, and the type of their first event says so.
type Snapshots interface {
	// Completed reports whether the bus has the completed marker of a resource.
	Completed(context.Context, schema.GroupResource) (bool, error)
	// Started and Finished publish a marker and wait for its acknowledgement.
	Started(context.Context, event.Resource) error
	Finished(ctx context.Context, r event.Resource, objects int) error
}

// snapshot is the state of the first sync of a resource, in one term.
type snapshot struct {
	begun  atomic.Bool   // it is known whether this is a first sync, and keys are enqueued
	ever   chan struct{} // closed when begun was true for the first time
	once   sync.Once     // closes ever
	done   atomic.Bool   // the bus has the completed marker
	empty  chan struct{} // has a token when the number of unacknowledged objects may have become 0
	synced atomic.Bool   // all objects of the first sync are enqueued
}

func newSnapshot() *snapshot {
	return &snapshot{ever: make(chan struct{}), empty: make(chan struct{}, 1)}
}

// reset is for the next term.
func (n *snapshot) reset() {
	n.begun.Store(false)
	n.done.Store(false)
	n.synced.Store(false)
}

var markerBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 1 << 30, Cap: 15 * time.Second}

// beginSnapshot finds out whether this is a first sync, and if so writes the started marker
// before the first object. It returns false if ctx ends first.
func (s *Set) beginSnapshot(ctx context.Context, w *watched) bool {
	return s.mark(ctx, w, func() error {
		done, err := s.config.Snapshots.Completed(ctx, w.resource.GroupResource())
		if err != nil || done {
			w.snapshot.done.Store(done)
			return err
		}
		return s.config.Snapshots.Started(ctx, w.resource)
	})
}

// finishSnapshot waits until every object of the first sync is acknowledged, and then writes
// the completed marker.
func (s *Set) finishSnapshot(ctx context.Context, w *watched) {
	if w.snapshot.done.Load() {
		return
	}
	w.snapshot.synced.Store(true)
	for s.ledger.FirstSyncLeft(w.resource.GroupResource()) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-w.snapshot.empty:
		}
	}
	objects := s.len(w)
	if s.mark(ctx, w, func() error { return s.config.Snapshots.Finished(ctx, w.resource, objects) }) {
		w.snapshot.done.Store(true)
		s.log.Info("first snapshot completed", "resource", w.resource.GroupResource().String(), "objects", objects)
	}
}

// advance is called after each key that was settled, since it may be the last of a first sync.
func (s *Set) advance(w *watched) {
	if w.snapshot.done.Load() || !w.snapshot.synced.Load() || s.ledger.FirstSyncLeft(w.resource.GroupResource()) > 0 {
		return
	}
	select {
	case w.snapshot.empty <- struct{}{}:
	default:
	}
}

// mark reads or writes a marker. It tries until it succeeds or ctx ends.
func (s *Set) mark(ctx context.Context, w *watched, write func() error) bool {
	level := slog.LevelWarn
	return nil == markerBackoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := write()
		if err != nil && ctx.Err() == nil {
			s.log.Log(ctx, level, "snapshot marker failed, retrying", "resource", w.resource.GroupResource().String(), "err", err)
			level = slog.LevelDebug // there may be hundreds of resources
		}
		return err == nil, nil
	})
}

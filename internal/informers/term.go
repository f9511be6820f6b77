package informers

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kuberelay/kuberelay/internal/event"
)

// term is one leadership term. Keys are enqueued only during a term.
type term struct {
	ctx     context.Context // ends with the term
	end     context.CancelFunc
	running sync.WaitGroup // the resources that have joined the term
}

// terms notifies the resources when a term begins or ends.
type terms struct {
	mu      sync.Mutex
	current *term         // nil on a standby
	changed chan struct{} // closed when current changes
}

func newTerms() *terms { return &terms{changed: make(chan struct{})} }

// join returns the current term, nil on a standby, and a channel that is closed when the term
// changes. If the term is not nil, the caller must call its running.Done.
func (t *terms) join() (now *term, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		t.current.running.Add(1)
	}
	return t.current, t.changed
}

// set sets the current term and returns the previous term.
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

// StartLeading makes a Set with [Config.Standby] enqueue keys. The Set first enqueues all known
// keys, as after a start. Call [Set.RaiseEpoch] with the epochs on the bus before StartLeading. It
// does not block.
func (s *Set) StartLeading() {
	t := &term{}
	t.ctx, t.end = context.WithCancel(context.Background())
	s.terms.set(t)
}

// StopLeading makes the Set a standby again. When it returns, the Set no longer writes markers or
// enqueues keys. The informers continue to run.
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

// enqueue enqueues a key if its resource has joined a term. Otherwise the next term enqueues all
// keys of the resource.
func (s *Set) enqueue(k event.Key) {
	if s.hasJoined(k) {
		s.config.Enqueue(k)
	}
}

// EnqueueLowPriority is enqueue for background work.
func (s *Set) EnqueueLowPriority(k event.Key) {
	if s.hasJoined(k) {
		s.config.EnqueueLowPriority(k)
	}
}

func (s *Set) hasJoined(k event.Key) bool {
	if !s.config.Standby {
		return true
	}
	w := s.watchedFor(k.GroupResource())
	return w == nil || w.snapshot.begun.Load()
}

// joinTerms makes a resource join each term until ctx ends.
func (s *Set) joinTerms(ctx context.Context, w *watched) {
	for {
		now, changed := s.terms.join()
		if now != nil {
			s.runTerm(ctx, now, w)
			now.running.Done()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// runTerm runs the first sync of a resource and then maintains its markers, until the term or ctx
// ends.
func (s *Set) runTerm(ctx context.Context, t *term, w *watched) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	if s.epochIsDue(w) {
		return // the informers may hold states of the previous history and will restart soon
	}
	if !s.begin(ctx, w) {
		return
	}
	select {
	case <-ctx.Done():
	case <-w.firstSynced:
		s.finishSnapshot(ctx, w)
	}
	s.keepMarkers(ctx, w)
}

// begin determines whether this is a first sync, and enqueues all keys of the resource. It returns
// false if ctx ends first.
func (s *Set) begin(ctx context.Context, w *watched) bool {
	if !s.beginSnapshot(ctx, w) {
		return false
	}
	s.includeInFirstSync(w) // before any of the objects can be published
	w.snapshot.begun.Store(true)
	w.snapshot.once.Do(func() { close(w.snapshot.everBegun) })
	if !s.config.Standby {
		return true // nothing is listed yet
	}
	s.includeInFirstSync(w) // objects that arrived before begun was set
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

// includeInFirstSync adds the objects that a standby has already listed to the first sync. onAdd
// does this for objects that are listed later.
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

// forgetRegularly makes a standby forget changes that are older than [Config.Remember], until ctx
// ends. Either the leader has published these changes, or reconciliation finds them.
func (s *Set) forgetRegularly(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, max(s.config.Remember/4, time.Millisecond), false, func(context.Context) (bool, error) {
		if s.terms.isStandby() {
			s.ledger.ForgetBefore(s.config.Now().Add(-s.config.Remember))
		}
		return false, nil
	})
}

// Snapshots stores the markers of first syncs on the bus. A sync of a resource is its first sync
// until the bus has the completed marker. The first event of each object in a first sync has the
// type snapshot, which means that the object existed before the forwarder.
type Snapshots interface {
	// Completed reports whether the bus has the completed marker of a resource.
	Completed(context.Context, schema.GroupResource) (bool, error)
	// Started and Finished publish a marker and wait for its acknowledgement.
	Started(context.Context, event.Resource) error
	Finished(ctx context.Context, r event.Resource, objects int) error
}

// snapshot is the state of the first sync of a resource in one term.
type snapshot struct {
	begun     atomic.Bool   // the resource has joined the term, so its keys are enqueued
	everBegun chan struct{} // closed when begun was true for the first time
	once      sync.Once     // closes everBegun
	done      atomic.Bool   // the bus has the completed marker
	empty     chan struct{} // has a token when the number of unacknowledged objects may have become 0
	lost      chan struct{} // has a token when the bus may have lost the completed marker
	synced    atomic.Bool   // all objects of the first sync are enqueued
}

func newSnapshot() *snapshot {
	return &snapshot{everBegun: make(chan struct{}), empty: make(chan struct{}, 1), lost: make(chan struct{}, 1)}
}

// reset prepares the snapshot for the next term.
func (n *snapshot) reset() {
	n.begun.Store(false)
	n.done.Store(false)
	n.synced.Store(false)
}

var markerBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 1 << 30, Cap: 15 * time.Second}

// beginSnapshot determines whether this is a first sync. If it is, beginSnapshot writes the started
// marker before the first object is published. It returns false if ctx ends first.
func (s *Set) beginSnapshot(ctx context.Context, w *watched) bool {
	return s.mark(ctx, w, func() error {
		done, err := s.writeStarted(ctx, w)
		w.snapshot.done.Store(err == nil && done)
		return err
	})
}

// writeStarted writes the started marker, unless the bus has the completed marker. It reports
// whether the bus has the completed marker.
func (s *Set) writeStarted(ctx context.Context, w *watched) (done bool, err error) {
	done, err = s.config.Snapshots.Completed(ctx, w.groupResource())
	if err != nil || done {
		return done, err
	}
	return false, s.config.Snapshots.Started(ctx, w.resource)
}

// finishSnapshot waits until the bus has acknowledged every object of the first sync, and then
// writes the completed marker.
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

// RenewMarkers requests new markers for a completed snapshot if the bus has lost them. It doesn't
// wait until they are written, because they follow the objects that the bus has also lost.
func (s *Set) RenewMarkers(ctx context.Context, gr schema.GroupResource) error {
	w := s.watchedFor(gr)
	if w == nil || !w.snapshot.done.Load() {
		return nil
	}
	done, err := s.config.Snapshots.Completed(ctx, gr)
	if err == nil && !done {
		select {
		case w.snapshot.lost <- struct{}{}:
		default:
		}
	}
	return err
}

// keepMarkers renews the markers each time the bus may have lost them, until ctx ends.
func (s *Set) keepMarkers(ctx context.Context, w *watched) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.snapshot.lost:
			s.renewMarkers(ctx, w)
		}
	}
}

// renewMarkers first waits until the bus has the objects that it lacks when renewMarkers is called.
// It then writes the markers again if the bus has lost them.
func (s *Set) renewMarkers(ctx context.Context, w *watched) {
	missing := s.missing(w)
	arrived := func(context.Context) (bool, error) {
		missing = slices.DeleteFunc(missing, func(k event.Key) bool { return !s.isMissing(w, k) })
		return len(missing) == 0, nil
	}
	if err := markerBackoff.DelayFunc().Until(ctx, true, true, arrived); err != nil {
		return // the term ends
	}
	s.mark(ctx, w, func() error {
		done, err := s.writeStarted(ctx, w)
		if err != nil || done {
			return err
		}
		return s.config.Snapshots.Finished(ctx, w.resource, s.len(w))
	})
}

// advance lets a first sync finish if it no longer waits for any key. It is called after each
// settled key.
func (s *Set) advance(w *watched) {
	if w.snapshot.done.Load() || !w.snapshot.synced.Load() || s.ledger.FirstSyncLeft(w.resource.GroupResource()) > 0 {
		return
	}
	select {
	case w.snapshot.empty <- struct{}{}:
	default:
	}
}

// mark calls write, which reads or writes a marker, until write succeeds or ctx ends.
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

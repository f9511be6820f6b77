package informers

import (
	"context"
	"sync"
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

// join returns the current term, or nil on a standby. It also returns a channel that is closed when
// the term changes. If the term is not nil, the caller must call its running.Done.
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
// keys, as after a start. Before StartLeading, call [Set.RaiseEpoch] with the epochs on the bus.
// StartLeading does not block.
func (s *Set) StartLeading() {
	t := &term{}
	t.ctx, t.end = context.WithCancel(context.Background())
	s.terms.set(t)
	for _, k := range s.ledger.Dirty() { // a watched resource enqueues its keys itself when it joins the term
		if s.watchedFor(k.GroupResource()) == nil {
			s.config.Enqueue(k)
		}
	}
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
	s.eachWatched(func(w *watched) {
		w.joined.Store(false)
		w.firstSync.Reset()
	})
	s.ledger.ForgetFirstSyncs()
}

// enqueue enqueues a key if its resource has joined a term. Otherwise the next term enqueues all
// keys of the resource.
func (s *Set) enqueue(k event.Key) {
	if s.hasJoined(k) {
		s.config.Enqueue(k)
	}
}

// EnqueueLowPriority is like enqueue, but for background work.
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
	return w == nil || w.joined.Load()
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
		return // the informers might hold states of the previous history and will restart soon
	}
	if !s.begin(ctx, w) {
		return
	}
	select {
	case <-ctx.Done():
	case <-w.firstSynced:
		w.firstSync.Finish(ctx)
	}
	w.firstSync.Keep(ctx)
}

// begin determines whether this is a first sync, and enqueues all keys of the resource. It returns
// false if ctx ends first.
func (s *Set) begin(ctx context.Context, w *watched) bool {
	if !w.firstSync.Begin(ctx) {
		return false
	}
	s.includeInFirstSync(w) // before any of the objects can be published
	w.joined.Store(true)
	w.onceJoined.Do(func() { close(w.everJoined) })
	if !s.config.Standby {
		return true // nothing is listed yet
	}
	s.includeInFirstSync(w) // objects that arrived before joined was set
	for k := range w.keys() {
		s.config.EnqueueLowPriority(k)
	}
	for _, k := range s.ledger.DirtyOf(w.groupResource()) {
		s.config.Enqueue(k) // the object might be gone
	}
	s.config.Compare(w.groupResource())
	return true
}

// includeInFirstSync adds the objects that a standby has already listed to the first sync. onAdd
// does this for objects that are listed later.
func (s *Set) includeInFirstSync(w *watched) {
	if !w.firstSync.IsListing() {
		return
	}
	now := s.config.Now()
	for _, i := range w.all() {
		for k := range i.keys() {
			if o := i.get(k); o != nil && !o.Unselected && s.selects(k) {
				s.ledger.Include(k, o, now)
			}
		}
	}
}

// forgetRegularly makes a standby forget changes that are older than [Config.Remember], until ctx
// ends. Either the leader has published these changes, or reconciliation finds them.
func (s *Set) forgetRegularly(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) {
		if s.terms.isStandby() {
			s.ledger.ForgetBefore(s.config.Now().Add(-s.config.Remember))
		}
	}, max(s.config.Remember/4, time.Millisecond))
}

// RenewMarkers requests new markers for a completed first sync if the bus has lost them.
func (s *Set) RenewMarkers(ctx context.Context, gr schema.GroupResource) error {
	if w := s.watchedFor(gr); w != nil {
		return w.firstSync.Renew(ctx)
	}
	return nil
}

package relay

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/workqueue"
)

// The path of one event, from the watch to the acknowledgement:
//
//  1. informers.Set records an object's state as the watch shows it, and calls enqueue.
//  2. workqueue.Queue hands the key to one worker at a time.
//  3. forward.Forwarder looks up this state and the acknowledged state, decides, and builds
//     the event.
//  4. The forwarder sends the event to the bus, and the worker takes the next key.
//  5. The bus acknowledges the event. forward.Forwarder records the acknowledgement in
//     ledger.Ledger, and the key is done. After an error, the key is queued again.
//
// Steps 1 and 5 happen in the named packages. The functions below run the other steps.

// enqueue begins the path of a changed key. Outside of a term, it does nothing: at the start of a
// term, the informers enqueue all their keys.
func (r *Relay) enqueue(k event.Key) {
	if t := r.term.Load(); t != nil {
		t.queue.Add(k)
	}
}

// enqueueLowPriority is like enqueue, but for a key of a first sync or a resync.
func (r *Relay) enqueueLowPriority(k event.Key) {
	if t := r.term.Load(); t != nil {
		t.queue.AddLowPriority(k)
	}
}

// work hands keys to the workers, until the queue is drained or ctx ends.
func (t *term) work(ctx context.Context) { t.queue.Run(ctx, t.sync) }

// sync runs one step of a worker for one key.
func (t *term) sync(ctx context.Context, k event.Key, done func(workqueue.Result)) {
	t.forwarder.Sync(ctx, k, func(again bool, err error) { done(workqueue.Result{Again: again, Err: err}) })
}

// publish counts the event of a key against the limits of the queue, and hands it to the bus.
func (t *term) publish(ctx context.Context, m *event.Message, done func(position uint64, err error)) {
	t.queue.Hold(m.Key, len(m.Data))
	t.bus.Publish(ctx, m, done)
}

// A key without a change begins its path at the reconciler, which compares a resource's objects on
// the bus with the cluster.

// compare requests a comparison of a resource for the informers. Outside of a term, it does
// nothing.
func (r *Relay) compare(gr schema.GroupResource) {
	if t := r.term.Load(); t != nil {
		t.reconciler.CompareResource(gr)
	}
}

// discovered requests a comparison of every resource that has objects on the bus. The informers call
// it when the first discovery is in effect, and whenever all references have become known. The first
// call also warns about published fields that are known to hold secrets.
func (r *Relay) discovered() {
	r.warned.Do(func() { r.shape.Warn(r.informers.Resources(), r.Logger) })
	if t := r.term.Load(); t != nil {
		t.compareAll()
	}
}

// compareAll compares every resource that has objects on the bus, whether or not it is watched.
func (t *term) compareAll() {
	for _, gr := range t.acked.Resources() {
		t.reconciler.CompareResource(gr)
	}
}

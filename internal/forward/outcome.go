package forward

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
)

// Outcome is the result of the latest publishes of a resource.
type Outcome struct {
	Published time.Time     // when the bus last acknowledged an event; the zero value for never
	Lag       time.Duration // from the observation of that event's change to its acknowledgement
	Truncated int64         // states that were published with metadata only
	// Err is the error of the object whose publish failed last, and Key is its key. Objects that no
	// longer need the publish do not count. Err is nil if there is no such object. Since is the time
	// when publishes of the resource began to fail.
	Err   error
	Key   event.Key
	Since time.Time
}

// Outcome returns the outcome of a resource. It does not block.
func (f *Forwarder) Outcome(gr schema.GroupResource) Outcome {
	of, ok := f.outcomes.Load(gr)
	if !ok {
		return Outcome{}
	}
	var is Outcome
	o := of.(*outcome)
	is.Truncated = o.truncated.Load()
	if at := o.published.Load(); at != 0 {
		is.Published, is.Lag = time.Unix(0, at), time.Duration(o.lag.Load())
	}
	if failed := o.failed.Load(); failed != nil {
		last := failed.last()
		is.Err, is.Key, is.Since = last.err, last.key, failed.since
	}
	return is
}

// Description is the state of a key in the forwarder.
type Description struct {
	Acked         event.Acked
	Reason        ledger.Reason // of the pending decision; [ledger.ReasonForeign] if the decision needs a read of the bus
	Unpublishable bool

	// If Own is true, Err is the key's own error, and Since is the time when publishes of the key
	// began to fail. Otherwise Err and Since are those of [Outcome] for the key's resource.
	Err   error
	Since time.Time
	Own   bool
}

// Describe describes a key. It does not block and changes nothing.
func (f *Forwarder) Describe(key event.Key) Description {
	view := f.Informers.Lookup(key)
	d := Description{Acked: view.Acked, Unpublishable: view.Unpublishable, Reason: ledger.ReasonForeign}
	if !d.Acked.Foreign {
		_, d.Reason = ledger.Decide(view)
	}
	if of, ok := f.outcomes.Load(key.GroupResource()); ok {
		if failed := of.(*outcome).failed.Load(); failed != nil {
			d.Err, d.Since = failed.last().err, failed.since
			if i := failed.find(key); i >= 0 {
				d.Err, d.Since, d.Own = failed.keys[i].err, failed.keys[i].since, true
			}
		}
	}
	return d
}

// outcomes maps each resource to an *outcome. Access to an existing *outcome takes no lock.
type outcomes struct {
	sync.Map
	metrics *metrics
}

type outcome struct {
	published atomic.Int64 // Unix nanoseconds
	bytes     prometheus.Counter
	lag       atomic.Int64 // nanoseconds; of two concurrent events, either lag might be stored
	truncated atomic.Int64
	failed    atomic.Pointer[failures] // nil for none
}

// failures holds the keys of a resource whose last publish failed, in the order of the failures,
// and at most the last maxFailures of them. The value is immutable.
type failures struct {
	since time.Time
	keys  []failure // not empty
}

type failure struct {
	key   event.Key
	err   error
	since time.Time
}

// maxFailures limits the number of errors to keep for each resource. A key that is left out appears
// again when its next retry fails.
const maxFailures = 10

func (f *failures) last() failure { return f.keys[len(f.keys)-1] }

// find returns the index of a key, or -1 if there is none.
func (f *failures) find(k event.Key) int {
	return slices.IndexFunc(f.keys, func(of failure) bool { return of.key == k })
}

// with returns a copy of f with the error of a key added. f can be nil.
func (f *failures) with(k event.Key, err error, now time.Time) *failures {
	if f == nil {
		return &failures{now, []failure{{k, err, now}}}
	}
	keys, since := slices.Clone(f.keys), now
	if i := f.find(k); i >= 0 {
		since = keys[i].since
		keys = slices.Delete(keys, i, i+1)
	}
	keys = append(keys, failure{k, err, since})
	return &failures{f.since, keys[max(0, len(keys)-maxFailures):]}
}

// without returns a copy of f without the key at an index, or nil if no other key is left.
func (f *failures) without(i int) *failures {
	if len(f.keys) == 1 {
		return nil
	}
	return &failures{f.since, slices.Delete(slices.Clone(f.keys), i, i+1)}
}

// withoutID is a publish error whose text omits the event ID, because the ID contains a UID.
type withoutID struct {
	error
	id string
}

func (e withoutID) Error() string { return strings.TrimPrefix(e.error.Error(), "publish "+e.id+": ") }
func (e withoutID) Unwrap() error { return e.error }

func (o *outcomes) of(gr schema.GroupResource) *outcome {
	of, ok := o.Load(gr)
	if !ok {
		name := gr.String()
		o.metrics.truncated.WithLabelValues(name) // create the series with 0, so that the first event counts as an increase
		of, _ = o.LoadOrStore(gr, &outcome{bytes: o.metrics.bytes.WithLabelValues(name)})
	}
	return of.(*outcome)
}

// truncate counts a state that is published with metadata only.
func (o *outcomes) truncate(gr schema.GroupResource) {
	o.metrics.truncated.WithLabelValues(gr.String()).Inc()
	o.of(gr).truncated.Add(1)
}

// succeeded records the acknowledgement of an event. size is the size of the event's data in bytes.
func (o *outcomes) succeeded(k event.Key, size int, observed, now time.Time) {
	of := o.of(k.GroupResource())
	of.bytes.Add(float64(size))
	of.lag.Store(int64(max(0, now.Sub(observed))))
	of.published.Store(now.UnixNano())
	of.resolve(k)
}

// resolve drops the error of a key.
func (o *outcome) resolve(k event.Key) {
	for failed := o.failed.Load(); failed != nil; failed = o.failed.Load() {
		i := failed.find(k)
		if i < 0 || o.failed.CompareAndSwap(failed, failed.without(i)) {
			return
		}
	}
}

func (o *outcomes) failed(k event.Key, err error, now time.Time) {
	of := o.of(k.GroupResource())
	for {
		before := of.failed.Load()
		if of.failed.CompareAndSwap(before, before.with(k, err, now)) {
			return
		}
	}
}

func attributes(k event.Key) []any {
	return []any{"resource", k.GroupResource().String(), "namespace", k.Namespace, "name", k.Name}
}

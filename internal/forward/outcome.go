package forward

import (
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
	// Err is the error of the last failed publish, nil once that object needs no publish any
	// more. Since is when publishes of the resource began to fail.
	Err   error
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
		is.Err, is.Since = failed.err, failed.since
	}
	return is
}

// Description is what is known of a key.
type Description struct {
	Acked         event.Acked
	Reason        ledger.Reason // of the decision that is due now; [ledger.ReasonForeign] if it needs a read of the bus
	Unpublishable bool

	// Err and Since are those of [Outcome] for the key's resource. Own means that Err is about
	// this key.
	Err   error
	Since time.Time
	Own   bool
}

// Describe describes a key. It does not block, and changes nothing.
func (f *Forwarder) Describe(key event.Key) Description {
	view := f.Informers.Lookup(key)
	acked, attempted := f.Ledger.State(key)
	d := Description{Acked: acked, Unpublishable: view.Unpublishable, Reason: ledger.ReasonForeign}
	if !d.Acked.Foreign {
		_, d.Reason = ledger.Decide(view, acked, attempted)
	}
	if of, ok := f.outcomes.Load(key.GroupResource()); ok {
		if failed := of.(*outcome).failed.Load(); failed != nil {
			d.Err, d.Since, d.Own = failed.err, failed.since, failed.key == key
		}
	}
	return d
}

// outcomes has an *outcome for each resource. Access to an existing one takes no lock.
type outcomes struct {
	sync.Map
	metrics *metrics
}

type outcome struct {
	published atomic.Int64 // Unix nanoseconds
	bytes     prometheus.Counter
	lag       atomic.Int64 // nanoseconds; of two concurrent events, either may stay
	truncated atomic.Int64
	failed    atomic.Pointer[failure]
}

type failure struct {
	key   event.Key
	err   error
	since time.Time
}

func (o *outcomes) of(gr schema.GroupResource) *outcome {
	of, ok := o.Load(gr)
	if !ok {
		name := gr.String()
		o.metrics.truncated.WithLabelValues(name) // create the series with 0, so that the first event is an increase
		of, _ = o.LoadOrStore(gr, &outcome{bytes: o.metrics.bytes.WithLabelValues(name)})
	}
	return of.(*outcome)
}

// truncate counts a state that is published with metadata only.
func (o *outcomes) truncate(gr schema.GroupResource) {
	o.metrics.truncated.WithLabelValues(gr.String()).Inc()
	o.of(gr).truncated.Add(1)
}

// succeeded records the acknowledgement of an event. size is that of its data.
func (o *outcomes) succeeded(k event.Key, size int, observed, now time.Time) {
	of := o.of(k.GroupResource())
	of.bytes.Add(float64(size))
	of.lag.Store(int64(max(0, now.Sub(observed))))
	of.published.Store(now.UnixNano())
	of.resolve(k)
}

// resolve drops the error of a key.
func (o *outcome) resolve(k event.Key) {
	if failed := o.failed.Load(); failed != nil && failed.key == k {
		o.failed.CompareAndSwap(failed, nil)
	}
}

// failed records an error. Of two concurrent errors, either may stay.
func (o *outcomes) failed(k event.Key, err error, now time.Time) {
	of := o.of(k.GroupResource())
	if before := of.failed.Load(); before != nil {
		now = before.since
	}
	of.failed.Store(&failure{k, err, now})
}

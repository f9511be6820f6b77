package forward

import "github.com/kuberelay/kuberelay/internal/event"

// unanswered records that a publish or the read before it failed. The ledger drops the data that
// only a successful publish would use, so during an outage it keeps at most one state for each
// object. sent is the event that the bus may have stored, or the zero value if there is none. c is
// the change in that event.
func (f *Forwarder) unanswered(key event.Key, acked, sent event.Acked, c *event.Change) {
	f.Ledger.Unanswered(key, acked, sent, c, f.Informers.Interest(key))
	f.Informers.Settled(key)
}

func (f *Forwarder) settle(key event.Key, acked event.Acked) {
	f.Ledger.Settle(key, acked, f.Informers.Interest(key), f.Informers.Shown(key))
	f.Informers.Settled(key)
}

// unreported handles an object on the bus that the informers don't report. Its informer may have ended,
// so that a later delete went unnoticed.
func (f *Forwarder) unreported(key event.Key) {
	f.Informers.Unreported(key)
	f.Recheck(key)
}

// compareFound requests a comparison after a publish conflict. bus is the event that the bus has. If the
// informers don't show its object, they may have forgotten the object's delete, so compareFound also
// discards the pending consistency points.
func (f *Forwarder) compareFound(key event.Key, bus event.Acked) {
	if bus.Live() && f.Informers.Shown(key).UID != bus.UID {
		f.unreported(key)
		return
	}
	f.Recheck(key)
}

// record records an acknowledged event in the ledger and in the metrics. It returns false if the
// informers have no report about the object.
func (f *Forwarder) record(c event.Change, m *event.Message) (reported bool) {
	// The ledger keeps the key. A key that shares the strings of the cached object takes no extra
	// memory.
	key := event.Key{Group: c.Resource.Group, Resource: c.Resource.Resource, Namespace: c.Object.Namespace, Name: c.Object.Name}
	reported = f.Ledger.Acknowledge(key, m.Acked, c.Object, f.Informers.Interest(key))
	f.Informers.Settled(c.Key)
	f.metrics.published.WithLabelValues(c.Key.GroupResource().String(), c.Type.Short()).Inc()
	now := f.Now()
	f.metrics.lag.Observe(now.Sub(c.Observed).Seconds())
	if at, ok := wroteAt(c); ok {
		f.metrics.endToEnd.Observe(max(0, now.Sub(at).Seconds()))
	}
	f.outcomes.succeeded(c.Key, len(m.Data), c.Observed, now)
	if f.Published != nil {
		f.Published(key, c.Type, m.Acked.ResourceVersion, c.Observed, now)
	}
	return reported
}

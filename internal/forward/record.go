package forward

import "github.com/kuberelay/kuberelay/internal/event"

// unanswered records that a publish or the read before it failed. The ledger drops the data that only a
// successful publish would use. So during an outage, the ledger keeps at most one state for each object. sent
// is the event that the bus might have stored, or the zero value if there is none. c is the change in that
// event.
func (f *Forwarder) unanswered(key event.Key, acked, sent event.Acked, c *event.Change) {
	f.Ledger.Unanswered(key, acked, sent, c, f.Informers.Interest(key))
	f.Informers.Settled(key)
}

func (f *Forwarder) settle(key event.Key, acked event.Acked) {
	in := f.Informers.Interest(key) // before Shown, because its number of reports applies to both
	f.Ledger.Settle(key, acked, in, f.Informers.Shown(key))
	f.Informers.Settled(key)
}

// unreported handles an object on the bus that the informers don't report. Its informer might have ended,
// so that a later delete went unnoticed.
func (f *Forwarder) unreported(key event.Key) {
	f.Informers.Unreported(key)
	f.Recheck(key)
}

// conflict records that the bus has another event than a change expects, and requests a comparison. Another
// writer or an unacknowledged publish might have left a deleted object on the bus. If the informers have
// forgotten that object, the key can become clean, so conflict discards the pending consistency points both
// before and after it updates the ledger.
func (f *Forwarder) conflict(c event.Change, acked, bus event.Acked) {
	view := f.Informers.Lookup(c.Key)
	_, isGone := view.Tombstone(bus.UID)
	isForgotten := bus.Live() && !isGone && !isShown(view, bus.UID)
	if isForgotten {
		f.Informers.Unreported(c.Key)
	}
	f.Ledger.Conflict(c, acked, bus, f.Lost())
	if isForgotten {
		f.Informers.Unreported(c.Key)
	}
	f.Recheck(c.Key)
}

// isShown reports whether the informers show an object with a UID.
func isShown(v event.View, uid string) bool { return v.Live != nil && string(v.Live.UID) == uid }

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

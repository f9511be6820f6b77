package simulate

import (
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// This file models leader election. internal/relay and internal/informers begin and end terms in the same
// way. A standby watches the cluster, and its ledger keeps the reports of the informers.

const (
	leaseDuration = 15 * time.Second
	remembered    = 2 * leaseDuration // how long a standby keeps a report
)

// maxAlive is the maximum number of simultaneous forwarders.
func (w *world) maxAlive() int {
	if w.elects {
		return maxProcesses
	}
	return w.writers
}

// standsBy reports whether the process is a standby.
func (p *process) standsBy() bool { return p.world.elects && !p.leads }

// offerElection offers the actions of leader election. A standby can become the leader if no other process
// leads, or if the leader is frozen, so that its lease expires.
func (w *world) offerElection(slot int8, p *process) {
	if p.leads {
		w.offer(loseLease, slot, none, 1)
		return
	}
	w.offer(forget, slot, none, 1)
	for _, other := range w.processes {
		if other != nil && other.leads && !other.frozen {
			return
		}
	}
	w.offer(lead, slot, none, 1)
}

// lead begins a term. A frozen leader ends its term when it wakes up.
func (p *process) lead() {
	for _, other := range p.world.processes {
		if other != nil && other.leads {
			other.superseded = true
		}
	}
	p.leads = true
	p.beginTerm()
}

// startLeading is called when a new leader has loaded the checkpoint. On NATS, messages of the previous leader
// may still arrive, so the new leader loads the checkpoint again after leaseDuration.
func (p *process) startLeading() {
	if !p.world.isKafka() {
		p.reloadAt = p.now().Add(leaseDuration)
	}
	p.compareResource()
	p.join()
}

// join enqueues all keys once in each term. If the informers must first restart in another epoch, join does
// nothing, and turnEpoch calls it again.
func (p *process) join() {
	if !p.leads || !p.loaded || p.joined || p.epochIsDue() {
		return
	}
	p.joined = true
	p.enqueueShown()
	for _, k := range p.ledger.Dirty() {
		p.enqueue(k)
	}
	p.compareResource()
}

// mustReload reports whether a new leader has to load the checkpoint again.
func (p *process) mustReload() bool { return !p.reloadAt.IsZero() && !p.now().Before(p.reloadAt) }

// endTerm makes the process a standby. Requests of the ended term may still arrive at the bus.
func (p *process) endTerm() {
	p.world.tell("  the term of forwarder %d ends", p.slot+1)
	p.stopCoroutines()
	p.session = nil
	for _, f := range p.world.flightsOf(p) {
		p.world.stopWaiting(f, errLost)
	}
	p.acked.End()
	p.acked, p.reconciler = nil, nil
	p.leads, p.superseded, p.joined, p.loaded, p.due, p.wrote, p.gone = false, false, false, false, false, false, false
	p.keys, p.reloadAt, p.point, p.lookedAt = [len(objectNames)]queued{}, time.Time{}, event.Point{}, time.Time{}
}

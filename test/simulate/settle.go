package simulate

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/revision"
)

const (
	settleSteps = 3000             // the maximum number of steps of goOn
	settleTime  = 30 * time.Minute // the maximum time until the bus has converged, in the model
	plainTime   = 9 * time.Minute  // the same, if the forwarder doesn't need another read of the bus
	restTime    = 25 * time.Minute // how long the bus must then stay unchanged
)

// settle ends the faults and checks that the bus converges to the cluster and that nothing happens
// after that.
func (w *world) settle() {
	if w.wrong != nil {
		return
	}
	if !w.ended {
		w.do(action{kind: endFaults, slot: none, object: none})
	}
	within := settleTime
	if w.plain {
		within = plainTime
	}
	if !w.goOn(w.now.Add(within), func() bool { return !w.isBusy() && w.difference() == "" }) {
		w.violate(ruleConverge, "%s", w.difference())
		return
	}
	w.tell("the bus has converged")
	if !w.plain { // only another read of the bus finds a late message of a killed forwarder
		w.goOn(w.now.Add(refreshPeriod+time.Minute), func() bool { return false })
	}
	stores, mayRemove := w.stores, w.mayRemoveForeign()
	w.goOn(w.now.Add(restTime), func() bool { return false })
	if w.wrong == nil && w.stores != stores && !mayRemove && !w.oracle.mayDisagreeAboutEpochs() && !w.mayRepairUnseenDelete() {
		w.violate(ruleRest, "%d events", w.stores-stores)
	}
	if text := w.difference(); w.wrong == nil && text != "" {
		w.violate(ruleConverge, "later: %s", text)
	}
	for _, p := range w.processes {
		for object := range w.objects {
			if k := keyOf(object); p != nil && p.loaded && w.wrong == nil && p.ledger.IsDirty(k) && !w.mayStayDirty(p, k) {
				w.violate(ruleRest, "%s stays dirty in forwarder %d", k.Name, p.slot+1)
			}
		}
	}
}

// isForeign reports whether another forwarder published the last event of an object, and a forwarder treats
// that event as foreign.
func (w *world) isForeign(object int) bool {
	return slices.ContainsFunc(w.processes[:], func(p *process) bool {
		return p != nil && p.loaded && w.oracle.writer[object] != p.acked && p.acked.Get(keyOf(object)).Foreign
	})
}

// mayRemoveForeign reports whether the bus may have a foreign event that the forwarder does not repair. After
// a restore of etcd, or after the removal of the namespace, a comparison can still prove that the object of
// this event is gone.
func (w *world) mayRemoveForeign() bool {
	left := slices.ContainsFunc(w.oracle.forged[:], func(f *published) bool { return f != nil })
	removed := slices.ContainsFunc(w.cluster.spaces, func(c spaceChange) bool { return !c.after.exists })
	return left && (w.oracle.restored && w.config.leavesForeign() || removed)
}

// mayStayDirty reports whether a key of a forwarder may stay dirty.
func (w *world) mayStayDirty(p *process, k event.Key) bool {
	if w.oracle.restored || w.oracle.mayKeepAttempt() {
		return true
	}
	return p.acked.Get(k).Foreign && p.config.leavesForeign() && !w.knowsLeaving(p, k)
}

// knowsLeaving reports whether a forwarder knows that the object in the last event left the selection or was
// deleted after that event. Then the forwarder adopts the event, unless it is earlier than the last known event.
func (w *world) knowsLeaving(p *process, k event.Key) bool {
	last, acked := w.oracle.shown(objectOf(k)), p.acked.Get(k)
	v := p.Lookup(k)
	t, ok := v.Tombstone(last.UID)
	if w.foreign || !last.Live() || acked.UID != last.UID || acked.Position != last.Position || !ok || t.Object == nil {
		return false
	}
	return revision.IsUpTo(last.ResourceVersion, t.Object.ResourceVersion) && revision.IsUpTo(acked.ResourceVersion, last.ResourceVersion)
}

// isBusy reports whether a key waits in the queue of a forwarder.
func (w *world) isBusy() bool {
	for _, p := range w.processes {
		if p != nil && slices.ContainsFunc(p.keys[:], func(q queued) bool { return q.waiting }) {
			return true
		}
	}
	return false
}

// goOn runs the forwarders until nothing is left to do and done returns true, or until the time is
// over. It reports whether done returned true.
func (w *world) goOn(until time.Time, done func() bool) bool {
	for range settleSteps {
		if w.wrong != nil {
			return false
		}
		w.findOffers()
		total := 0
		for _, o := range w.offers {
			if o.kind != tick {
				total += w.weights[o.kind]
			}
		}
		if total > 0 {
			w.doOne(w.rng.IntN(total))
			continue
		}
		next := w.nextTimer()
		if done() {
			return true
		}
		if !next.After(w.now) || next.After(until) {
			return false
		}
		w.do(action{kind: tick, slot: none, object: none, arg: 2})
	}
	w.violate(ruleConverge, "not within %d steps", settleSteps)
	return false
}

func (w *world) doOne(n int) {
	for _, o := range w.offers {
		if o.kind == tick {
			continue
		}
		if n -= w.weights[o.kind]; n < 0 {
			w.do(o.action)
			return
		}
	}
}

// difference returns a difference between the bus and the cluster, or "".
func (w *world) difference() string {
	for object := range w.objects {
		s := w.cluster.objects[object]
		last := w.oracle.shown(object)
		name := objectNames[object]
		shown := last.noData // the UID that the attributes show as existing, 0 for none
		if last.Live() {
			shown = last.uid()
		}
		inScope := w.cluster.space().isSelected(w.config.scope)
		switch selected := inScope && s.exists() && (s.label || w.config.selection == all); {
		case !s.exists() && shown != 0:
			return name + " does not exist, and the bus shows it"
		case last.isCopy && last.isOld, last.inLost:
		case !selected && s.exists() && w.config.leavesForeign() && (w.oracle.forged[object] != nil || w.isForeign(object)):
		case !selected && shown != 0 && (shown != s.uid || w.config.publishDeselected || !inScope):
			return name + " is not selected, and the bus shows it"
		case !selected:
		case !last.Live():
			return name + " exists, and the bus does not show it"
		case last.uid() != s.uid:
			return name + " has another uid on the bus"
		case last.content.Data.Spec != strconv.Itoa(s.spec) || last.content.Data.Default != strconv.Itoa(w.cluster.content) ||
			last.content.Metadata.Labels["on"] != strconv.FormatBool(s.label):
			return name + " has another content on the bus"
		case w.config.project:
		case last.version != s.version || last.content.Data.Noise == nil || *last.content.Data.Noise != strconv.Itoa(s.noise):
			return name + " has another version on the bus"
		}
	}
	return ""
}

// endFaults ends all faults.
func (w *world) endFaults() {
	w.ended = true
	w.rng = rand.New(rand.NewPCG(1, uint64(len(w.trace))))
	for k, info := range infoOf {
		w.weights[k] = info.weight
	}
	for _, f := range slices.Clone(w.flights) {
		if f.sender == nil {
			w.drop(f)
		}
	}
	for _, p := range w.processes {
		if p != nil && p.frozen {
			p.wake()
		}
	}
	w.cluster.role = w.cluster.space().exists
	if first, second := w.processes[0], w.processes[1]; w.isKafka() && !w.elects && first != nil && second != nil {
		second.kill() // two writers would take over from each other forever
	}
	if w.processes[0] == nil && w.processes[1] == nil {
		w.start(0)
	}
}

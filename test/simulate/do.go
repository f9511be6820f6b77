package simulate

import (
	"context"
	"time"
)

// do performs an action.
func (w *world) do(a action) {
	w.steps++
	w.trace = append(w.trace, a)
	w.tell("%s", a)
	switch a.kind {
	case killProcess, restore, redefine, storeLate, reconfigure, toggleRole, lead, loseLease:
		w.plain = false
	case createSpace: // without a Role, the forwarder needs another read to find that the namespace was deleted again
		w.plain = w.plain && a.arg == 0
	}
	switch a.kind {
	case createObject, updateObject, changeNoise, toggleLabel, deleteObject:
		w.change(int(a.object), a)
	case createSpace:
		w.cluster.putSpace(space{exists: true, label: a.arg == 0})
		w.cluster.role = a.arg == 0
	case toggleSpace:
		w.cluster.putSpace(space{exists: true, label: !w.cluster.space().label})
	case deleteSpace:
		w.cluster.putSpace(space{})
		w.cluster.role = false
	case toggleRole:
		w.cluster.role = !w.cluster.role
	case redefine:
		w.cluster.content++
		for _, p := range w.processes {
			if p != nil {
				p.reflector.again = p.reflector.listed
			}
		}
	case forgeEvent:
		w.forge(int(a.object), forgery(a.arg))
	case endFaults:
		w.endFaults()
	case backUp:
		w.cluster.backUp()
	case restore:
		w.restore()
	case tick:
		w.passTime(a.arg)
	case passDay:
		w.now = w.now.Add([]time.Duration{time.Hour, 25 * time.Hour}[a.arg])
	case reconfigure:
		w.reconfigure(a.arg)
	case startProcess:
		w.start(a.slot)
	case stopBus:
		w.stopBus()
	case startBus:
		w.startBus(int(a.arg))
	case compact:
		w.brokers.compact(w.now)
	case recreate:
		w.recreate(int(a.arg))
	case storeLate:
		w.arrive(w.flight(none, int(a.object), requested))
	default:
		w.doIn(w.processes[a.slot], a)
	}
	w.reap()
	w.oracle.observe()
}

// doIn performs an action of one process.
func (w *world) doIn(p *process, a action) {
	r := &p.reflector
	switch a.kind {
	case killProcess:
		p.kill()
	case lead:
		p.lead()
	case loseLease:
		p.endTerm()
	case forget:
		p.ledger.ForgetBefore(p.now().Add(-remembered))
	case freeze:
		p.frozen = true
	case wake:
		p.wake()
	case connect:
		p.connect(a.arg)
	case show:
		p.show()
	case bookmark:
		p.bookmark()
	case index:
		p.index()
	case notify:
		p.notify()
	case breakWatch:
		r.watching = false
	case expire:
		r.watching, r.again = false, r.listed
	case turnEpoch:
		p.turnEpoch()
	case showSpace:
		p.showSpace(a.arg)
	case align:
		p.align()
	case race:
		p.race = a.arg + 1
	case resync:
		p.enqueueShown()
	case work:
		p.work(int(a.object))
	case proceed, fail:
		p.resume(p.coroutine(a.object), a.kind == fail)
	case reconcileDue:
		p.reconcile()
	case look:
		p.resolve()
	case storeEntry:
		p.session.storeEntry(int(a.object))
	case probe:
		p.gone = true
	case purgeDue:
		p.spawn(retention, func() { _, _ = p.retention.Once(context.Background()) })
	default:
		w.doOnBus(p, a)
	}
}

// doOnBus performs an action on a message of a process.
func (w *world) doOnBus(p *process, a action) {
	object := int(a.object)
	switch a.kind {
	case store:
		w.arrive(w.flight(a.slot, object, requested))
	case loseRequest:
		w.flight(a.slot, object, requested).lose()
	case answer:
		w.answer(w.flight(a.slot, object, answered))
	case loseAnswer:
		w.flight(a.slot, object, answered).lose()
	case timeOut:
		w.stopWaiting(w.anyFlight(a.slot, object), errTimeout)
	case disconnect:
		w.disconnect(p)
	default:
		panic("unknown action")
	}
}

// change changes an object.
func (w *world) change(object int, a action) {
	c := &w.cluster
	s := c.objects[object]
	switch a.kind {
	case createObject:
		c.uids++
		c.contents++
		s = state{uid: c.uids, spec: c.contents, label: a.arg == 0}
	case updateObject:
		c.contents++
		s.spec = c.contents
	case changeNoise:
		c.contents++
		s.noise = c.contents
	case toggleLabel:
		s.label = !s.label
	case deleteObject:
		s = state{}
	}
	s = c.put(object, s)
	w.tell("  version %d, uid %d, content %d, label %t", c.version, s.uid, s.spec, s.label)
}

// restore restores etcd from its backup. The API server restarts, which ends all watches.
func (w *world) restore() {
	w.cluster.restore()
	w.tell("  the version is %d", w.cluster.version)
	for _, p := range w.processes {
		if p != nil {
			p.reflector.watching = false
		}
	}
}

func (w *world) passTime(arg uint8) {
	switch arg {
	case 0:
		w.now = w.now.Add(time.Second)
	case 1:
		w.now = w.now.Add(20 * time.Second)
	case 2:
		if next := w.nextTimer(); next.After(w.now) {
			w.now = next
		}
	}
}

// nextTimer returns the time at which the next key, reconciler or resolver is due, or the current
// time if none is due later.
func (w *world) nextTimer() time.Time {
	next := time.Time{}
	earliest := func(t time.Time) {
		if t.After(w.now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, p := range w.processes {
		if p == nil || !p.loaded {
			continue
		}
		earliest(p.next)
		earliest(p.reloadAt)
		if p.pointIsDue() {
			earliest(p.lookedAt.Add(resolvedInterval))
		}
		for _, q := range p.keys {
			if q.waiting {
				earliest(q.since)
			}
		}
	}
	if next.IsZero() {
		return w.now
	}
	return next
}

// reconfigure changes the configuration of the forwarders that start from now on.
func (w *world) reconfigure(arg uint8) {
	w.config = configOf(int(arg))
	w.tell("  %+v", w.config)
}

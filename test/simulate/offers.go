package simulate

func (w *world) offer(k kind, slot int8, object int, variants int) {
	if w.weights[k] > 0 && (!w.ended || !infoOf[k].fault) {
		w.offers = append(w.offers, offer{action{k, slot, int8(object), 0}, variants})
	}
}

// findOffers finds the possible actions.
func (w *world) findOffers() {
	w.offers = w.offers[:0]
	w.offerUser()
	alive := 0
	for slot, p := range w.processes {
		if p != nil {
			alive++
			w.offerProcess(int8(slot), p)
		}
	}
	for slot, p := range w.processes {
		if p == nil && alive < w.maxAlive() {
			w.offer(startProcess, int8(slot), none, 1)
		}
	}
	if alive == 0 {
		variants := configurations
		if w.spaces {
			variants *= int(scopes)
		}
		w.offer(reconfigure, none, none, variants)
	}
	w.offerBus()
	w.offer(tick, none, none, 3)
	if w.isQuiet() {
		w.offer(passDay, none, none, 2)
	}
}

func (w *world) offerUser() {
	for object := range w.objects {
		if !w.cluster.objects[object].exists() {
			if w.cluster.space().exists {
				w.offer(createObject, none, object, 2)
			}
			continue
		}
		w.offer(updateObject, none, object, 1)
		w.offer(changeNoise, none, object, 1)
		w.offer(toggleLabel, none, object, 1)
		w.offer(deleteObject, none, object, 1)
	}
	for object := range w.objects {
		if w.foreign && !w.bus.down {
			w.offer(forgeEvent, none, object, int(forgeries))
		}
	}
	if w.spaces {
		w.offerSpace()
	}
	w.offer(redefine, none, none, 1)
	w.offer(backUp, none, none, 1)
	if w.cluster.backup != nil {
		w.offer(restore, none, none, 1)
	}
}

// offerSpace offers the changes of the namespace. The API server removes the namespace only when it is empty.
func (w *world) offerSpace() {
	if !w.cluster.space().exists {
		w.offer(createSpace, none, none, 2)
		return
	}
	w.offer(toggleSpace, none, none, 1)
	w.offer(toggleRole, none, none, 1)
	if w.cluster.objects == [len(objectNames)]state{} {
		w.offer(deleteSpace, none, none, 1)
	}
}

func (w *world) offerProcess(slot int8, p *process) {
	w.offer(killProcess, slot, none, 1)
	if p.frozen {
		w.offer(wake, slot, none, 1)
		return
	}
	w.offer(freeze, slot, none, 1)
	for _, c := range p.coroutines {
		w.offer(proceed, slot, int(c.id), 1)
		w.offer(fail, slot, int(c.id), 1)
	}
	if w.elects {
		w.offerElection(slot, p)
	} else if !p.loaded {
		return
	}
	w.offerSpaces(slot, p)
	w.offerWatch(slot, p)
	if !p.loaded {
		return
	}
	if p.coroutine(reconciler) == nil && (p.due || !p.now().Before(p.next) || p.mustReload()) {
		w.offer(reconcileDue, slot, none, 1)
	}
	if p.coroutine(retention) == nil {
		w.offer(purgeDue, slot, none, 1)
	}
	if p.mayResolve() {
		w.offer(look, slot, none, 1)
	}
	for object := range w.objects {
		if q := p.keys[object]; q.waiting && !q.working && !p.now().Before(q.since) {
			w.offer(work, slot, object, 1)
		}
	}
	if !w.bus.down {
		w.offer(disconnect, slot, none, 1)
	}
}

func (w *world) offerWatch(slot int8, p *process) {
	r := &p.reflector
	if p.epochIsDue() {
		w.offer(turnEpoch, slot, none, 1)
	}
	switch {
	case !p.spaces.isCovered:
	case (!r.watching || r.again) && (len(r.queue) > 0 || !p.hasAccess()):
	case !r.watching || r.again:
		w.offer(connect, slot, none, 4)
	case r.watching:
		if _, more := p.nextShown(); more {
			w.offer(show, slot, none, 1)
		} else if r.version < w.cluster.version {
			w.offer(bookmark, slot, none, 1)
		}
		w.offer(breakWatch, slot, none, 1)
		w.offer(expire, slot, none, 1)
	}
	if len(r.queue) > 0 {
		w.offer(index, slot, none, 1)
	}
	if len(r.notes) > 0 {
		w.offer(notify, slot, none, 1)
	}
	if len(r.queue)+len(r.notes) > 0 && p.race == 0 {
		w.offer(race, slot, none, maxRace)
	}
	w.offer(resync, slot, none, 1)
}

func (w *world) offerBus() {
	if w.bus.down {
		variants := 12
		if w.isKafka() {
			variants = 36
		}
		w.offer(startBus, none, none, variants)
		return
	}
	w.offer(stopBus, none, none, 1)
	if w.isKafka() {
		w.offerBrokers()
	}
	for object := range w.objects {
		for slot := range w.processes {
			of := int8(slot)
			if f := w.flight(of, object, requested); f != nil && w.isFirst(f) {
				w.offer(store, of, object, 1)
				w.offer(loseRequest, of, object, 1)
			}
			if p := w.processes[slot]; p != nil && p.frozen {
				continue // a frozen process doesn't receive a response
			}
			if w.flight(of, object, answered) != nil {
				w.offer(answer, of, object, 1)
				w.offer(loseAnswer, of, object, 1)
			}
			if w.ended && w.flight(of, object, lost) != nil || !w.ended && w.mayTimeOut(w.anyFlight(of, object)) {
				w.offer(timeOut, of, object, 1)
			}
		}
		if f := w.flight(none, object, requested); f != nil && w.isFirst(f) {
			w.offer(storeLate, none, object, 1)
		}
	}
}

func (w *world) mayTimeOut(f *flight) bool { return f != nil && !f.late }

func (w *world) offerBrokers() {
	for slot, p := range w.processes {
		if p == nil || p.session == nil || p.frozen {
			continue
		}
		for n, at := range p.session.checkpoint {
			if len(at.unstored) > 0 && !at.sending {
				w.offer(storeEntry, int8(slot), n, 1)
			}
		}
		if p.session.isReplaced() {
			w.offer(probe, int8(slot), none, 1)
		}
	}
	w.offer(compact, none, none, 1)
	w.offer(recreate, none, none, 3)
}

func (w *world) anyFlight(slot int8, object int) *flight {
	for _, at := range []stage{requested, answered, lost} {
		if f := w.flight(slot, object, at); f != nil {
			return f
		}
	}
	return nil
}

// isQuiet reports whether nothing is in flight. Only then may a day pass: the retention is correct
// only if no watch or message is minutes late.
func (w *world) isQuiet() bool {
	if len(w.flights) > 0 || w.bus.down {
		return false
	}
	for _, p := range w.processes {
		if p != nil && (p.frozen || !p.loaded && !p.standsBy() || len(p.coroutines) > 0 || p.due || p.behind()) {
			return false
		}
	}
	return true
}

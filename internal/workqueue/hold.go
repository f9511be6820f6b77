package workqueue

import "time"

// hold is one key's use of the budgets.
type hold struct {
	flow  *flow // nil for a key handed out with low priority
	bytes uint32
}

// use adds a hold to the budgets. keys is 1, or 0 to add only the bytes.
func (q *priorityQueue) use(h hold, keys int64) {
	bytes := int64(h.bytes)
	q.all.take(keys, bytes)
	if h.flow == nil {
		q.low.take(keys, bytes)
		return
	}
	h.flow.keys += keys
	h.flow.bytes += bytes
}

// release is the inverse of use.
func (q *priorityQueue) release(h hold, keys int64) {
	bytes := int64(h.bytes)
	q.all.give(keys, bytes)
	if h.flow == nil {
		q.low.give(keys, bytes)
	} else {
		q.flows.release(h.flow, keys, bytes, &q.all)
	}
	q.flows.released(&q.all)
	if q.wake(); q.all.keys.used == 0 {
		q.change.Broadcast() // for idle, and for await after close
	}
}

// holdBytes sets the bytes that a handler holds for a key.
func (q *priorityQueue) holdBytes(key item, bytes uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.keys[key]
	q.release(s.hold, 0)
	s.bytes = bytes
	q.keys[key] = s
	q.use(s.hold, 0)
	if s.flow == nil {
		now := time.Now()
		q.sent[key] = now
		if q.pace.published(now) {
			time.AfterFunc(rest, q.endRest)
		}
	}
}

// completed marks a key as no longer held, before client-go's queue is updated. If the key is finished,
// its next Add sets its priority. If the key was added while it was held, it is queued once more. During
// a drain, a key with a further step stays held, and completed returns false.
func (q *priorityQueue) completed(key item, r Result) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, to := q.keys[key], keyState{}
	switch {
	case r.Err == nil && r.Again && q.draining && !q.ended:
		return false
	case r.Err == nil && r.Again, s.place == readded:
		to = keyState{place: added, priority: s.priority}
	case r.Err != nil:
		to = keyState{place: delayed, priority: s.priority}
	}
	if at, sent := q.sent[key]; sent {
		delete(q.sent, key)
		if r.Err == nil && !r.Again {
			q.window.acknowledged(time.Since(at), q.low.keys.used, time.Now())
			q.low.keys.resize(q.window.keys())
		}
	}
	q.move(key, to)
	q.release(s.hold, 1)
	return true
}

// idle blocks until no handler holds a key.
func (q *priorityQueue) idle() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.all.keys.used > 0 {
		q.change.Wait()
	}
}

package workqueue

import (
	"fmt"
	"slices"
)

// inconsistency compares the parts of the state of a queue. It returns "" if they agree.
func inconsistency(q *priorityQueue) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var count [places][priorities]int
	for key, s := range q.keys {
		count[s.place][s.priority]++
		if q.backlog.has(key.Value()) {
			return "a key is in the backlog and in the queue"
		}
		if s.place == queued && s.priority == low && !slices.Contains(q.lowFIFO.items[q.lowFIFO.head:], key) {
			return "a low-priority key is not in its queue"
		}
		if f := q.flows.byID[flowOf(key.Value())]; s.place == queued && s.priority == normal && (f == nil || !slices.Contains(f.queued.items[f.queued.head:], key)) {
			return "a normal key is not in its flow"
		}
	}
	if count != q.count || count[queued][low] != q.lowFIFO.len() || count[queued][normal] != q.flows.len() || count[absent] != [priorities]int{} {
		return fmt.Sprintf("the counts are %v, want %v, with %d and %d queued", q.count, count, q.flows.len(), q.lowFIFO.len())
	}
	var keys, bytes int64
	for _, f := range q.flows.byID {
		keys, bytes = keys+f.keys, bytes+f.bytes
		if f.queued.len() == 0 && f.keys == 0 || f.queued.len() > 0 && f.keys == 0 && !f.awaits {
			return fmt.Sprintf("a flow is forgotten: %+v", f)
		}
	}
	held := count[held][normal] + count[held][low] + count[readded][normal] + count[readded][low]
	if q.all.keys.used != keys+q.low.keys.used || q.all.bytes.used != bytes+q.low.bytes.used || q.all.keys.used < int64(held) {
		return fmt.Sprintf("%d keys are held: %+v, %+v, and %d keys and %d bytes of flows", held, q.all, q.low, keys, bytes)
	}
	return ""
}

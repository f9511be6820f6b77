package workqueue

// Limit limits the keys that handlers hold.
type Limit struct {
	Keys  int
	Bytes int64 // total size of their events, as set by [Queue.Hold]; 0 for no limit
}

// budget tracks the use of a [Limit].
type budget struct{ keys, bytes meter }

func newBudget(l Limit) budget {
	return budget{keys: meter{limit: int64(l.Keys)}, bytes: meter{limit: l.Bytes}}
}

// open reports whether one more key may be handed out. The size of its event is still
// unknown, so the bytes in use can exceed the limit by one event for each worker.
func (b *budget) open() bool { return !b.keys.full && !b.bytes.full }

func (b *budget) take(keys, bytes int64) {
	b.keys.take(keys)
	b.bytes.take(bytes)
}

func (b *budget) give(keys, bytes int64) {
	b.keys.give(keys)
	b.bytes.give(bytes)
}

// exceedsShare reports whether a flow holds at least quarters/4 of the free part of the limit.
func (b *budget) exceedsShare(f *flow, quarters int64) bool {
	return 4*f.keys >= quarters*b.keys.free() || b.bytes.limit > 0 && 4*f.bytes >= quarters*b.bytes.free()
}

// meter tracks one dimension of a budget. Once full, it stays full until an eighth of the
// limit is free, so that not every completion wakes a worker.
type meter struct {
	limit, used int64 // a limit of 0 means no limit
	full        bool
}

func (m *meter) free() int64 { return m.limit - m.used }

func (m *meter) take(n int64) {
	m.used += n
	m.full = m.full || m.limit > 0 && m.used >= m.limit
}

func (m *meter) give(n int64) {
	m.used -= n
	m.full = m.full && m.used > m.limit-1-m.limit/8
}

func (m *meter) resize(limit int64) {
	m.limit = limit
	m.take(0)
	m.give(0)
}

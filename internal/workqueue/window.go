package workqueue

import "time"

// window is how many keys that can wait are with handlers at once: as many as the bus takes
// in the time that it needs for one alone and patience more. It answers one after the other,
// so any more would be a queue at the bus, and every change would stand at its end; with any
// less the bus would be idle.
//
// After each round, which is as many answers as the window is wide, the width is set by
// Little's law, that is by how long the answers took. The time for one alone is the shortest
// of the last minutes, as in RFC 6817, which keeps downloads in the background out of the
// way of others by the same means.
type window struct {
	most, width int

	sum    time.Duration // of the answers of this round
	count  int
	recent [2]time.Duration // the shortest answers of this period and of the one before
	since  time.Time        // this period
}

const (
	firstWidth = 64
	leastWidth = 16

	patience = 25 * time.Millisecond
	period   = time.Minute
)

func newWindow(most int) *window { return &window{most: most, width: min(firstWidth, most)} }

// took is told how long an answer of the bus has taken.
func (w *window) took(d time.Duration, now time.Time) {
	if now.Sub(w.since) >= period {
		w.recent[0], w.recent[1], w.since = 0, w.recent[0], now
	}
	if w.recent[0] == 0 || d < w.recent[0] {
		w.recent[0] = d
	}
	w.sum += d
	if w.count++; w.count < w.width {
		return
	}
	mean := w.sum / time.Duration(w.count)
	w.sum, w.count = 0, 0
	alone := w.recent[0]
	if w.recent[1] > 0 {
		alone = min(alone, w.recent[1])
	}
	fair := float64(w.width) * float64(alone+patience) / float64(max(mean, 1))
	fair = min(max(fair, float64(w.width)/2), 2*float64(w.width))
	w.width = min(max(int(fair), leastWidth), w.most)
}

package workqueue

import (
	"sync"
	"time"
)

// gate lets so many in, and of those that can wait no more than their window is wide. When
// it is full it stays shut until an eighth of them have left, so that a worker that was held
// up goes on for a while, and is not woken for each one.
type gate struct {
	mu     sync.Mutex
	change sync.Cond
	most   int
	window *window
	inside [2]int // by lane
	shut   [2]bool
	ended  bool
}

func newGate(most int) *gate {
	g := &gate{most: most, window: newWindow(most)}
	g.change.L = &g.mu
	return g
}

// enter waits until there is room. It is false if the gate has been ended.
func (g *gate) enter(in lane) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for (g.shut[changed] || in == canWait && g.shut[canWait]) && !g.ended {
		g.change.Wait()
	}
	if g.ended {
		return false
	}
	g.inside[in]++
	g.shut[changed] = g.inside[changed]+g.inside[canWait] >= g.most
	g.shut[canWait] = g.inside[canWait] >= g.window.width
	return true
}

// leave is told how long the bus has taken for an answer, 0 if it was not asked.
func (g *gate) leave(in lane, took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside[in]--; in == canWait && took > 0 {
		g.window.took(took, time.Now())
	}
	all := g.inside[changed] + g.inside[canWait]
	whole := g.reopens(changed, all, g.most)
	behind := g.reopens(canWait, g.inside[canWait], g.window.width)
	if whole || behind || all == 0 {
		g.change.Broadcast()
	}
}

// reopens opens a gate that is shut, if there is room enough.
func (g *gate) reopens(of lane, inside, most int) bool {
	if !g.shut[of] || inside > most-1-most/8 {
		return false
	}
	g.shut[of] = false
	return true
}

// end lets nobody in any more.
func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	g.change.Broadcast()
}

// await returns when nobody is inside.
func (g *gate) await() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.inside != [2]int{} {
		g.change.Wait()
	}
}

func (g *gate) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside[changed] + g.inside[canWait]
}

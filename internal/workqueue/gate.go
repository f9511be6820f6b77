package workqueue

import "sync"

// gate lets so many in. When it is full it stays shut until an eighth of them have left, so
// that a worker that was held up goes on for a while, and is not woken for each one.
type gate struct {
	mu     sync.Mutex
	change sync.Cond
	most   int
	inside int
	shut   bool
	ended  bool
}

func newGate(most int) *gate {
	g := &gate{most: most}
	g.change.L = &g.mu
	return g
}

// enter waits until there is room. It is false if the gate has been ended.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.shut && !g.ended {
		g.change.Wait()
	}
	if g.ended {
		return false
	}
	g.inside++
	g.shut = g.inside >= g.most
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.shut && g.inside <= g.most-1-g.most/8 {
		g.shut = false
		g.change.Broadcast()
	}
	if g.inside == 0 {
		g.change.Broadcast()
	}
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
	for g.inside > 0 {
		g.change.Wait()
	}
}

func (g *gate) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}

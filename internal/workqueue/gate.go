package workqueue

import "sync"

// gate lets so many in, and of those that can wait only a part of them. When it is full it
// stays shut until an eighth of them have left, so that a worker that was held up goes on for
// a while, and is not woken for each one.
type gate struct {
	mu     sync.Mutex
	change sync.Cond
	whole  room // of all
	behind room // of those that can wait
	ended  bool
}

// room is a number of places.
type room struct {
	most, inside int
	shut         bool
}

func (r *room) enter() {
	r.inside++
	r.shut = r.shut || r.inside >= r.most
}

// leave tells whether the room opens again.
func (r *room) leave() bool {
	r.inside--
	if !r.shut || r.inside > r.most-1-r.most/8 {
		return false
	}
	r.shut = false
	return true
}

func newGate(most, behind int) *gate {
	g := &gate{whole: room{most: most}, behind: room{most: behind}}
	g.change.L = &g.mu
	return g
}

// enter waits until there is room. It is false if the gate has been ended.
func (g *gate) enter(in lane) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for (g.whole.shut || in == canWait && g.behind.shut) && !g.ended {
		g.change.Wait()
	}
	if g.ended {
		return false
	}
	if g.whole.enter(); in == canWait {
		g.behind.enter()
	}
	return true
}

func (g *gate) leave(in lane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	opens := g.whole.leave()
	if in == canWait && g.behind.leave() {
		opens = true
	}
	if opens || g.whole.inside == 0 {
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
	for g.whole.inside > 0 {
		g.change.Wait()
	}
}

func (g *gate) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.whole.inside
}

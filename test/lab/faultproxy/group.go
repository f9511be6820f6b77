package faultproxy

// Group is the proxies of one client to several servers. They fail together.
type Group []*Proxy

func (g Group) each(do func(*Proxy)) {
	for _, p := range g {
		do(p)
	}
}

// DropAnswers is [Proxy.DropAnswers] of all.
func (g Group) DropAnswers() { g.each((*Proxy).DropAnswers) }

// Freeze is [Proxy.Freeze] of all.
func (g Group) Freeze() { g.each((*Proxy).Freeze) }

// Break is [Proxy.Break] of all.
func (g Group) Break() { g.each((*Proxy).Break) }

// Refuse is [Proxy.Refuse] of all.
func (g Group) Refuse() { g.each((*Proxy).Refuse) }

// Pass is [Proxy.Pass] of all.
func (g Group) Pass() { g.each((*Proxy).Pass) }

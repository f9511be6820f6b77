package faultproxy

// Group is the set of proxies between one client and several servers. Each method applies to all of
// them.
type Group []*Proxy

func (g Group) each(do func(*Proxy)) {
	for _, p := range g {
		do(p)
	}
}

// DropAnswers calls [Proxy.DropAnswers] on every proxy.
func (g Group) DropAnswers() { g.each((*Proxy).DropAnswers) }

// Freeze calls [Proxy.Freeze] on every proxy.
func (g Group) Freeze() { g.each((*Proxy).Freeze) }

// Break calls [Proxy.Break] on every proxy.
func (g Group) Break() { g.each((*Proxy).Break) }

// Refuse calls [Proxy.Refuse] on every proxy.
func (g Group) Refuse() { g.each((*Proxy).Refuse) }

// Pass calls [Proxy.Pass] on every proxy.
func (g Group) Pass() { g.each((*Proxy).Pass) }

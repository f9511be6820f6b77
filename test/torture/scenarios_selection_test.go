package torture

import "context"

// homeOf is the target of operations on the first namespace.
var homeOf = target{resource: namespaces, name: "a"}

// playTeamLeaves removes the label of a namespace and adds it again.
func playTeamLeaves(s *script) {
	one := at("one")
	s.create("one", "two")
	s.begin(0)
	s.change(leaveTeam, homeOf)
	s.onBus(one, 2)
	s.idle(0)
	s.change(joinTeam, homeOf)
	if !s.planted() {
		s.onBus(one, 3)
	}
	s.idle(0)
}

// playTeamLeft removes the label of a namespace while the forwarder is down.
func playTeamLeft(s *script) {
	s.create("one", "two")
	s.begin(0)
	s.kill(0)
	s.change(leaveTeam, homeOf)
	s.begin(0)
	if !s.planted() {
		s.onBus(at("one"), 2)
	}
	s.idle(0)
}

// playTeamUnknown starts a forwarder that may read everything except namespaces.
func playTeamUnknown(s *script) {
	s.create("one", "two")
	s.begin(0)
	s.kill(0)
	s.allowOnlyOf([]string{configMaps}, "get", "list", "watch")
	s.do(act{do: start})
	if s.planted() {
		s.onBus(at("one"), 2)
	} else {
		s.either("watch of namespaces failed")
	}
	s.do(act{do: grant})
	s.idle(0)
}

// playServe serves planets in an additional version, then only in that one, and then only in the
// first, with a change in each step.
func playServe(s *script) {
	mars, definition := target{resource: planets, name: "mars"}, target{resource: planets}
	s.change(put, mars)
	s.begin(0)
	for n, how := range []opVerb{serveBoth, serveNew, serveOld} {
		s.change(how, definition)
		if how != serveNew { // the preferred version is still served
			s.logged(0, 2+n/2, `"informer synced","resource":"planets`)
		}
		s.until("planets are served", func(ctx context.Context) error { return s.user.served(ctx, planets) })
		s.change(put, mars)
		s.idle(0)
	}
}

// playHomeless changes cluster-scoped objects while the forwarder is down.
func playHomeless(s *script) {
	mars, venus := target{resource: planets, name: "mars"}, target{resource: planets, name: "venus"}
	s.change(put, mars)
	s.change(put, venus)
	s.begin(0)
	s.kill(0)
	s.change(recreate, mars)
	s.change(remove, venus)
	s.begin(0)
}

// playTeamUnanswered adds the label of a namespace again while the bus refuses all messages, and
// removes the label before the next retry.
func playTeamUnanswered(s *script) {
	s.create("one")
	s.begin(0)
	s.change(leaveTeam, homeOf)
	s.onBus(at("one"), 2)
	s.idle(0)
	s.do(act{do: busFull})
	s.change(joinTeam, homeOf)
	s.logged(0, 1, failing)
	s.change(leaveTeam, homeOf)
	s.logged(0, 3, "namespace selection changed")
	s.do(act{do: busRoom})
	s.idle(0)
}

// playNeverTaken creates an object while the bus refuses all messages, and deletes the object before
// the next retry.
func playNeverTaken(s *script) {
	s.create("other", "later")
	s.begin(0)
	s.do(act{do: busFull})
	s.create("one")
	s.logged(0, 1, failing)
	s.change(remove, at("one"))
	s.logged(0, 2, `"name":"one"`)
	s.do(act{do: busRoom})
	s.idle(0)
}

package torture

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The actions of which faults consist
const (
	start     verb = "start"            // a forwarder; arg is a failpoint
	arm       verb = "kill and arm"     // kill, and start with a failpoint
	killNow   verb = "kill"             // SIGKILL; the forwarder is restarted
	terminate verb = "terminate"        // SIGTERM; the forwarder is restarted
	stop      verb = "stop"             // SIGTERM; the forwarder stays down
	freeze    verb = "freeze"           // SIGSTOP
	thaw      verb = "thaw"             // SIGCONT
	awaitDead verb = "await the end of" // through its failpoint

	busDrop   verb = "drop the bus's answers to"
	busHold   verb = "hold the bus's connection to"
	busRefuse verb = "refuse the bus to"
	busPass   verb = "mend the bus's connection to"
	apiDrop   verb = "drop the API server's answers to"
	apiHold   verb = "hold the API server's connection to"
	apiRefuse verb = "refuse the API server to"
	apiPass   verb = "mend the API server's connection to"

	awaitLog     verb = "await in the log of"          // arg is the text
	awaitDeleted verb = "await a delete on the bus of" // arg is the resource

	busKill   verb = "kill the bus"
	busStart  verb = "start the bus"
	busFreeze verb = "freeze the bus"
	busThaw   verb = "thaw the bus"
	lose      verb = "make the bus lose last messages"

	copyStore  verb = "copy the store of the bus"
	putBack    verb = "restore the store of the bus from the copy"
	emptyStore verb = "empty the store of the bus"
	cutTail    verb = "cut the tail off the topic" // arg is one topic, or both separated by a comma; n is the number of batches to cut from each partition

	busFull verb = "make the stream full"
	busRoom verb = "give the stream room"

	deleteTopic   verb = "delete the topic" // arg is one topic, or both separated by a comma
	addPartitions verb = "add partitions to the topic"

	apiKill   verb = "kill the API server"
	apiStart  verb = "start the API server"
	apiFreeze verb = "freeze the API server"
	apiThaw   verb = "thaw the API server"
	compact   verb = "compact etcd"
	etcdKill  verb = "kill etcd"
	etcdStart verb = "start etcd"
	snapshot  verb = "snapshot etcd"
	restore   verb = "restore etcd"
	revoke    verb = "forbid to read configmaps and namespaces"
	grant     verb = "allow to read configmaps and namespaces"

	reconfigure verb = "give another configuration to" // n is the index among the plan's configurations, from 1 on; arg is how the forwarders end

	change     verb = "change" // arg is an operation
	comeBack   verb = "once it is gone"
	awaitAPI   verb = "await the definition's service"
	racePurges verb = "recreate while deletes are purged"
)

// verbsOfNodes are the actions that concern one forwarder.
var verbsOfNodes = []verb{
	start, arm, killNow, terminate, stop, freeze, thaw, awaitDead,
	busDrop, busHold, busRefuse, busPass, apiDrop, apiHold, apiRefuse, apiPass, awaitLog,
}

// kind is a kind of fault.
type kind struct {
	name      string
	uses      []string // parts that no other fault may touch meanwhile
	first     bool     // part of the first sync
	long      bool     // begins in one phase and ends in the next
	slow      bool     // takes more than a few seconds
	refreshed bool     // only a refresh of the checkpoint finds its effect
	alone     []string // kinds that it can't be combined with

	// felt is the text in a forwarder's log that shows an effect of the fault, or a key of
	// troubles. It is "" if the log doesn't show the effect.
	felt string
	add  func(g *generator, from, to int)
}

func (k kind) conflicts(with kind) bool {
	return slices.Contains(k.alone, with.name) || slices.Contains(with.alone, k.name)
}

// Messages in the log of a forwarder
const (
	synced  = "informer synced"
	failing = "publish failed"
	cutOff  = "connection to the bus lost"
	unwatch = "watch failed"
	emptied = "events of deleted objects purged"
)

// troubles contains the texts that a forwarder may log when a server doesn't respond.
var troubles = map[string][]string{
	busTrouble: {
		failing, cutOff, "cannot reach the bus", "waiting for the bus", "the bus is not ready",
		"checkpoint load failed", "checkpoint reload failed", "snapshot marker failed", "not writing to Kafka", "batch not acknowledged",
	},
	apiTrouble: {unwatch, "waiting for the API server", "discovery failed", "watch ended with", "Failed to watch"},
}

const (
	busTrouble = "trouble with the bus"
	apiTrouble = "trouble with the API server"
)

// logged counts the texts in a log that an act awaits or that a fault causes.
func logged(log, what string) int {
	texts, ok := troubles[what]
	if !ok {
		texts = []string{what}
	}
	n := 0
	for _, text := range texts {
		n += strings.Count(log, text)
	}
	return n
}

// What faults use
const (
	theForwarder = "forwarder 0"
	another      = "forwarder 1"
	theBus       = "bus"
	theAPI       = "API server"
)

// With two writers, the forwarders refresh the checkpoint every second. When one forwarder ends, the other
// may not know its last events. For example, if an object existed only briefly, the other forwarder publishes
// nothing about the object, and so the bus can't refuse anything. The next refresh finds the object's event.

const (
	restored  = "etcd restored from a snapshot"
	purged    = "objects recreated while their deletes are purged"
	twice     = "two forwarders run at once"
	stale     = "stale forwarder resumed"
	beforeOne = "forwarder killed before a purge"

	nsRemoved  = "namespace deleted"
	nsUnseen   = "namespace labels changed while not watched"
	crdRemoved = "CustomResourceDefinition deleted"
	crdComes   = "CustomResourceDefinition added"
	crdMoves   = "versions of a CustomResourceDefinition changed"
)

// kinds returns all kinds of faults of a bus. Each seed of the first round takes the next three. The
// order separates the slow kinds.
func (s sink) kinds() []kind {
	if s == onKafka {
		return kafkaKinds
	}
	return natsKinds
}

var natsKinds = []kind{
	killedAt("key-taken", "forwarder killed while processing a key", 30),
	{
		name: "NATS killed and restarted", uses: []string{theBus}, felt: busTrouble,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: busKill}, act{do: awaitLog, arg: busTrouble}, act{do: busStart})
		},
	},
	{
		name: "API server killed and restarted", uses: []string{theAPI}, slow: true, felt: apiTrouble,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: apiKill}, act{do: awaitLog, arg: apiTrouble}, act{do: apiStart})
		},
	},

	killedAt("before-publish", "forwarder killed before a publish", 30),
	{
		name: "NATS frozen", uses: []string{theBus}, felt: busTrouble,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: busFreeze}, act{do: awaitLog, arg: busTrouble}, act{do: busThaw})
		},
	},
	{
		name: "watch expired (etcd compacted)", uses: []string{theAPI, theForwarder}, slow: true, felt: "too old resource version",
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: freeze}, act{do: compact}, act{do: apiKill}, act{do: apiStart}, act{do: thaw})
		},
	},

	killedAt("after-publish", "forwarder killed before an acknowledgement", 30),
	{
		name: "NATS responses dropped", uses: []string{theBus}, felt: busTrouble,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: busDrop}, act{do: awaitLog, arg: busTrouble}, act{do: busPass})
		},
	},
	{
		name: twice, refreshed: true, uses: []string{another}, alone: []string{stale}, felt: "publish conflict, deciding again",
		add: func(g *generator, from, to int) {
			ends := act{do: stop, node: g.IntN(2)}
			g.plan.survivor = 1 - ends.node
			second := act{do: start, node: 1}
			if points := []string{"key-taken", "before-publish", "after-publish", "after-ack"}; g.IntN(2) == 0 {
				second.arg = fmt.Sprintf("%s:%d", points[g.IntN(len(points))], 1+g.IntN(60))
			}
			g.during(from, to, second, act{do: awaitLog, node: 1, arg: synced}, ends)
		},
	},

	killedAt("after-ack", "forwarder killed after an acknowledgement", 30),
	{
		name: "connection to NATS broken", uses: []string{theBus}, felt: busTrouble,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: []verb{busHold, busRefuse}[g.IntN(2)]}, act{do: busPass})
		},
	},
	{
		name: "etcd killed and restarted", uses: []string{theAPI},
		add: func(g *generator, from, to int) { g.during(from, to, act{do: etcdKill}, act{do: etcdStart}) },
	},

	killedAt("loading", "forwarder killed while loading the checkpoint", 8),
	{
		name: "stream filled to its limit", uses: []string{theBus}, felt: "no room",
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: busFull}, act{do: awaitLog, arg: busTrouble}, act{do: busRoom})
		},
	},
	{
		name: "API server frozen", uses: []string{theAPI},
		add: func(g *generator, from, to int) { g.during(from, to, act{do: apiFreeze}, act{do: apiThaw}) },
	},

	{
		name: "forwarder killed during the first sync", uses: []string{theForwarder}, first: true, felt: "failpoint first-sync",
		add: func(g *generator, _, _ int) {
			g.plan.phases[0].acts[0].arg = fmt.Sprintf("first-sync:%d", 1+g.IntN(12))
		},
	},
	{
		name: "messages lost by the bus", refreshed: true, uses: []string{theBus, theForwarder, another},
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: lose, n: []int{1, 3, 6, 1000}[g.IntN(4)]})
		},
	},
	{
		name: "connection to the API server broken", uses: []string{theAPI}, felt: apiTrouble,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: []verb{apiDrop, apiHold, apiRefuse}[g.IntN(3)]}, act{do: apiPass})
		},
	},

	{
		name: "forwarder killed while draining", uses: []string{theForwarder}, felt: "failpoint drain",
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: arm, arg: "drain:1"}, act{do: awaitLog, arg: synced}, act{do: terminate})
		},
	},
	{
		name: purged, uses: []string{theForwarder, theAPI, theBus}, alone: []string{stale, twice, restored}, felt: emptied,
		add: func(g *generator, from, to int) {
			g.plan.settings.retention = time.Second
			g.during(from, to, act{do: racePurges, n: 12})
		},
	},
	{
		name: crdRemoved, uses: []string{"definition"},
		add: func(g *generator, from, to int) {
			of := []string{widgets, planets}[g.IntN(2)]
			acts := []act{{do: change, arg: string(undefine) + " " + of}, {do: change, arg: string(define) + " " + of}}
			if g.IntN(3) == 0 {
				acts = acts[:1] // the definition stays away
			}
			g.during(from, to, acts...)
		},
	},

	{
		name: stale, refreshed: true, uses: []string{theForwarder, another}, alone: []string{twice}, felt: "publish conflict, deciding again",
		add: func(g *generator, from, to int) {
			g.plan.survivor = g.IntN(2)
			g.during(from, to, act{do: start, node: 1}, act{do: awaitLog, node: 1, arg: synced}, act{do: freeze}, act{do: thaw})
		},
	},
	{
		name: nsRemoved, alone: []string{purged, beforeOne},
		add: func(g *generator, from, to int) {
			home := []string{"a", "b"}[g.IntN(2)]
			again := act{do: []verb{change, comeBack, comeBack}[g.IntN(3)], arg: string([]opVerb{createHome, stranger}[g.IntN(2)]) + " " + home}
			g.during(from, to, act{do: change, arg: string(removeAll) + " " + home}, again)
		},
	},
	{
		// The changes after the restore only create and delete. Otherwise, an object could reach
		// the version that it has on the bus, with other content, before the forwarder detects the
		// restore. This is a limit in docs/delivery.md.
		name: restored, uses: []string{theAPI, theForwarder, another}, long: true, slow: true, alone: []string{purged, beforeOne, nsRemoved, nsUnseen, crdRemoved, crdComes, crdMoves}, felt: "resource history was rolled back",
		add: func(g *generator, from, to int) {
			g.calm = to
			g.during(from, to, [][]act{
				{{do: snapshot}, {do: restore}},
				{{do: snapshot}, {do: freeze}, {do: restore}, {do: thaw}},
				{{do: snapshot}, {do: stop}, {do: restore}, {do: start}},
			}[g.IntN(3)]...)
		},
	},

	{
		name: beforeOne, uses: []string{theForwarder, theAPI, theBus}, alone: []string{stale, twice, restored}, felt: "failpoint before-purge",
		add: func(g *generator, from, to int) {
			g.plan.settings.retention = time.Second
			g.during(from, to, act{do: arm, arg: fmt.Sprintf("before-purge:%d", 1+g.IntN(3))}, act{do: racePurges, n: 6}, act{do: awaitDead})
		},
	},
	{
		name: "reads forbidden", uses: []string{theAPI}, felt: "is forbidden",
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: revoke}, act{do: apiRefuse}, act{do: apiPass}, act{do: awaitLog, arg: "is forbidden"}, act{do: grant})
		},
	},
	{
		name: "forwarder killed at a random time", uses: []string{theForwarder},
		add: func(g *generator, from, to int) {
			g.during(from, to, []act{{do: killNow}, {do: killNow}, {do: terminate}}[g.IntN(2):]...)
		},
	},

	{
		name: nsUnseen, uses: []string{theForwarder, theAPI}, alone: []string{purged, beforeOne}, felt: "namespace selection changed",
		add: func(g *generator, from, to int) {
			g.plan.settings.byTeam = true
			away := [][2]act{
				{{do: stop}, {do: start}}, {{do: freeze}, {do: thaw}}, {{do: apiHold}, {do: apiPass}}, {{do: apiRefuse}, {do: apiPass}},
			}[g.IntN(4)]
			g.during(from, to, slices.Concat(away[:1], g.flips(), away[1:])...)
		},
	},
	{
		name: crdComes, uses: []string{"definition"}, felt: `"informer synced","resource":"` + moons,
		add: func(g *generator, from, to int) {
			g.plan.settings.moons = true
			g.add(from, act{do: change, arg: string(define) + " " + moons}, act{do: awaitAPI, arg: moons})
			if g.IntN(3) == 0 {
				g.add(min(to+1, len(g.plan.phases)-1), act{do: change, arg: string(undefine) + " " + moons})
			}
		},
	},
	{
		name: crdMoves, uses: []string{"definition"}, felt: `"version":"v2"`,
		add: func(g *generator, from, to int) {
			of := []string{widgets, planets}[g.IntN(2)]
			var acts []act
			for _, how := range [][]opVerb{
				{serveBoth}, {serveNew}, {serveBoth, serveNew}, {serveBoth, serveNew, serveOld}, {serveNew, serveOld}, {serveBoth, serveOld, serveNew},
			}[g.IntN(6)] {
				acts = append(acts, act{do: change, arg: string(how) + " " + of})
				if g.IntN(2) == 0 {
					acts = append(acts, act{do: awaitLog, arg: synced})
				}
			}
			g.during(from, to, acts...)
		},
	},
}

// killedAt returns a kind that kills the forwarder at one of the first hits of a failpoint.
func killedAt(point, name string, hits int) kind {
	return kind{
		name: name, uses: []string{theForwarder}, felt: "failpoint " + point,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: arm, arg: fmt.Sprintf("%s:%d", point, 1+g.IntN(hits))})
		},
	}
}

// during puts the first act into phase from, the last into phase to, and each other act into either
// of the two.
func (g *generator) during(from, to int, acts ...act) {
	if from == to || len(acts) == 1 {
		g.add(from, acts...)
		return
	}
	cut := 1 + g.IntN(len(acts)-1)
	g.add(from, acts[:cut]...)
	g.add(to, acts[cut:]...)
}

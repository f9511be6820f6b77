package torture

import (
	"fmt"
	"slices"
)

// The names of the recent kinds
const (
	selectionChanges = "selection changed between runs"
	formChanges      = "event format changed between runs"
	topicChanges     = "topic changed between runs"
	crdDefaults      = "default added to a CustomResourceDefinition"
	crdPrunes        = "field pruned by a CustomResourceDefinition"
	crdUnblocked     = "CustomResourceDefinition deleted without its objects and recreated"
	storeBack        = "NATS restored from an earlier copy of its store"
	storeEmpty       = "NATS restarted with an empty store"
	eventsCut        = "end of the event topic lost"
	checkpointCut    = "end of the checkpoint topic lost"
	bothCut          = "ends of both topics lost"
)

// recentKinds returns the kinds that were added later. A plan draws them separately, so that the older
// decisions of a seed stay the same.
func (r round) recentKinds() []kind {
	of := recentOfNATS
	if r.sink == onKafka {
		of = recentOfKafka
	}
	return slices.DeleteFunc(slices.Concat(recentKinds, serverKinds, of), r.lacks)
}

// allKinds returns the kinds in the report.
func (r round) allKinds() []kind { return slices.Concat(r.kinds(), r.recentKinds()) }

var recentKinds = []kind{
	{
		name: selectionChanges, uses: []string{theForwarder, another, theLeader, theBus}, slow: true, alone: []string{restored, purged, beforeOne},
		add: func(g *generator, from, to int) { g.during(from, to, g.reconfigurations(changeSelection)...) },
	},
	{
		name: crdDefaults, uses: []string{"definition"}, alone: []string{restored},
		add: func(g *generator, from, to int) {
			g.remodel(from, to, []opVerb{giveDefault}, []opVerb{giveDefault, giveOther}, []opVerb{giveDefault, takeSchema})
		},
	},
	{
		name: formChanges, uses: []string{theForwarder, another, theLeader, theBus}, slow: true, alone: []string{restored, purged, beforeOne},
		add: func(g *generator, from, to int) { g.during(from, to, g.reconfigurations(changeForm)...) },
	},
	{
		name: crdPrunes, uses: []string{"definition"}, alone: []string{restored},
		add: func(g *generator, from, to int) {
			g.remodel(from, to, []opVerb{prune}, []opVerb{prune, takeSchema}, []opVerb{giveDefault, prune})
		},
	},
	{
		// Objects with their own finalizer stay in etcd. They return with the definition, with the
		// same versions.
		name: crdUnblocked, uses: []string{"definition", theAPI}, alone: []string{restored, purged, beforeOne},
		add: func(g *generator, from, to int) {
			of := []string{widgets, planets}[g.IntN(2)]
			acts := []act{{do: change, arg: string(pin) + " " + of}, {do: change, arg: string(pin) + " " + of}, {do: change, arg: string(undefine) + " " + of}}
			if g.IntN(2) == 0 {
				acts = append(acts, act{do: awaitLog, arg: of + "." + group})
			}
			acts = append(acts, act{do: change, arg: string(unblock) + " " + of})
			if g.IntN(3) > 0 {
				acts = append(acts, act{do: awaitDeleted, arg: of})
			}
			g.during(from, to, append(acts, act{do: comeBack, arg: string(define) + " " + of}, act{do: awaitAPI, arg: of})...)
		},
	},
}

// remodel creates two objects and then changes the schema of their definition in one of several ways.
// No operation of the workload changes these objects after that.
func (g *generator) remodel(from, to int, ways ...[]opVerb) {
	of := []string{widgets, planets}[g.IntN(2)]
	acts := []act{{do: change, arg: string(fresh) + " " + of}, {do: change, arg: string(fresh) + " " + of}}
	for _, how := range ways[g.IntN(len(ways))] {
		acts = append(acts, act{do: change, arg: string(how) + " " + of}, act{do: awaitAPI, arg: of})
	}
	g.during(from, to, acts...)
}

var recentOfNATS = []kind{
	{
		name: storeBack, uses: []string{theBus, theForwarder, another, theLeader}, slow: true, alone: []string{purged, beforeOne, restored}, felt: busTrouble,
		add: func(g *generator, from, to int) { g.during(from, to, act{do: copyStore}, act{do: putBack}) },
	},
	{
		name: storeEmpty, uses: []string{theBus, theForwarder, another, theLeader}, slow: true, alone: []string{purged, beforeOne, restored}, felt: busTrouble,
		add: func(g *generator, from, to int) { g.during(from, to, act{do: emptyStore}) },
	},
}

var recentOfKafka = []kind{
	tailCut(eventsCut, topicName),
	{
		name: topicChanges, uses: []string{theForwarder, another, theLeader, theBus}, slow: true,
		alone: []string{restored, purged, beforeOne, "event topic deleted", "checkpoint topic deleted", "both topics deleted", "partitions added", "records deleted"},
		add:   func(g *generator, from, to int) { g.during(from, to, g.reconfigurations(changeTopic)...) },
	},
	tailCut(checkpointCut, checkpointName),
	tailCut(bothCut, topicName+","+checkpointName),
}

// tailCut returns a kind that kills the broker and cuts off the last batches of topics, while the
// forwarder runs or is down.
func tailCut(name, topics string) kind {
	return kind{
		name: name, uses: []string{theBus, theForwarder, another, theLeader}, slow: true, alone: []string{restored, purged, beforeOne}, felt: busTrouble,
		add: func(g *generator, from, to int) {
			g.plan.settings.kafka.idempotent = true
			cut := act{do: cutTail, arg: topics, n: []int{1, 2, 5, 1000}[g.IntN(4)]}
			g.during(from, to, [][]act{{cut}, {cut}, {{do: stop}, cut, {do: start}}, {cut, {do: killNow}}}[g.IntN(4)]...)
		},
	}
}

// modeled returns the schema of a version of a definition.
func modeled(how opVerb) map[string]any {
	of := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	text := map[string]any{"type": "string"}
	switch how {
	case giveDefault, giveOther:
		of["properties"] = map[string]any{"note": map[string]any{"type": "string", "default": fmt.Sprintf("from %q", how)}}
	case prune:
		delete(of, "x-kubernetes-preserve-unknown-fields")
		of["properties"] = map[string]any{"data": map[string]any{"type": "object", "properties": map[string]any{"value": text, "hidden": text}}}
	}
	return map[string]any{"openAPIV3Schema": of}
}

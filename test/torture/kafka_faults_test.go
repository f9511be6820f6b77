package torture

import (
	"fmt"
	"slices"
)

const (
	kafkaTwice = "two forwarders run at once, each fencing the other"
	kafkaStale = "forwarder resumed after another took over"
)

// kafkaKinds are the faults of a Kafka broker.
var kafkaKinds = []kind{
	like("forwarder killed while processing a key"),
	like("NATS killed and restarted").called("Kafka killed and restarted"),
	like("API server killed and restarted"),

	like("forwarder killed before a publish"),
	like("NATS frozen").called("Kafka frozen"),
	like("watch expired (etcd compacted)"),

	like("forwarder killed before an acknowledgement"),
	like("NATS responses dropped").called("Kafka responses dropped"),
	{
		// While the two forwarders fence each other, one of them may not know the last states of
		// the cluster that the other one saw, as on NATS.
		name: kafkaTwice, refreshed: true, uses: []string{another}, alone: []string{kafkaStale}, felt: fencedOff,
		add: func(g *generator, from, to int) {
			s := &g.plan.settings
			s.kafka.idempotent = true
			ends := act{do: stop, node: g.IntN(2)}
			g.plan.survivor = 1 - ends.node
			second := act{do: start, node: 1}
			if points := []string{"key-taken", "before-publish", "after-publish", "after-ack", "before-record", "taking-over"}; g.IntN(2) == 0 {
				second.arg = fmt.Sprintf("%s:%d", points[g.IntN(len(points))], 1+g.IntN(20))
			}
			g.during(from, to, second, act{do: awaitLog, node: 1, arg: synced}, ends)
		},
	},

	like("forwarder killed after an acknowledgement"),
	like("connection to NATS broken").called("connection to Kafka broken"),
	like("etcd killed and restarted"),

	like("forwarder killed while loading the checkpoint"),
	{
		name: "event topic deleted", uses: []string{theBus, theForwarder, another}, felt: "topic created",
		add: func(g *generator, from, to int) { g.deleted(from, to, topicName) },
	},
	like("API server frozen"),

	like("forwarder killed during the first sync"),
	{
		name: "records deleted", refreshed: true, uses: []string{theBus, theForwarder, another},
		add: func(g *generator, from, to int) {
			g.plan.settings.kafka.keepAll()
			g.during(from, to, act{do: lose, n: []int{1, 3, 6, 1000}[g.IntN(4)]})
		},
	},
	like("connection to the API server broken"),

	killedAt("before-record", "forwarder killed before writing a checkpoint entry", 30),
	{
		name: "checkpoint topic deleted", uses: []string{theBus, theForwarder, another}, felt: "topic created",
		add: func(g *generator, from, to int) { g.deleted(from, to, checkpointName) },
	},
	like("forwarder killed while draining"),

	killedAt("taking-over", "forwarder killed during a takeover", 6),
	like(purged).with(kafkaTwice, kafkaStale),
	like(crdRemoved),

	{
		// The stale forwarder must write nothing: the broker refuses its records.
		name: kafkaStale, refreshed: true, uses: []string{theForwarder, another}, felt: fencedOff,
		add: func(g *generator, from, to int) {
			s := &g.plan.settings
			s.kafka.idempotent, s.kafka.returns = true, 0
			g.plan.survivor = 1
			g.during(from, to, act{do: freeze}, act{do: start, node: 1}, act{do: awaitLog, node: 1, arg: synced}, act{do: thaw})
		},
	},
	like(nsRemoved),
	like(restored),

	like(beforeOne).with(kafkaTwice, kafkaStale),
	like("reads forbidden"),
	like("forwarder killed at a random time"),

	{
		name: "both topics deleted", uses: []string{theBus, theForwarder, another}, felt: "topic created",
		add: func(g *generator, from, to int) { g.deleted(from, to, checkpointName+","+topicName) },
	},
	{
		// The next session finds the new partitions, and the session after it finds the result.
		// The checkpoint topic must stay: only it records the number of partitions over which keys
		// are spread.
		name: "partitions added", uses: []string{theBus, theForwarder, another}, alone: []string{"checkpoint topic deleted"},
		add: func(g *generator, from, to int) {
			topics := []string{topicName, checkpointName, topicName + "," + checkpointName}[g.IntN(3)]
			g.during(from, to, act{do: addPartitions, arg: topics}, act{do: killNow}, act{do: awaitLog, arg: synced}, act{do: killNow})
		},
	},
	like(crdMoves),

	like(nsUnseen),
	like(crdComes),
}

// deleted deletes topics while the forwarder runs, is frozen or is down.
func (g *generator) deleted(from, to int, topics string) {
	is := act{do: deleteTopic, arg: topics}
	g.during(from, to, [][]act{{is}, {is}, {{do: freeze}, is, {do: thaw}}, {{do: stop}, is, {do: start}}}[g.IntN(4)]...)
}

// like returns the kind of fault with this name on NATS, which Kafka also has.
func like(name string) kind {
	n := slices.IndexFunc(natsKinds, func(k kind) bool { return k.name == name })
	k := natsKinds[n]
	k.alone = slices.DeleteFunc(slices.Clone(k.alone), func(name string) bool { return name == stale || name == twice })
	return k
}

// called returns a kind under another name.
func (k kind) called(name string) kind {
	k.name = name
	return k
}

// with returns a kind that can't be combined with these other kinds either.
func (k kind) with(others ...string) kind {
	k.alone = slices.Concat(k.alone, others)
	return k
}

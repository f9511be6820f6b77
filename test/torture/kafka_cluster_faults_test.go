package torture

// kafkaClusterKinds are the faults of a cluster of Kafka brokers. Only an unclean election loses
// records that the brokers have acknowledged.
var kafkaClusterKinds = []kind{
	{
		name: "partition leader killed", uses: []string{theBus}, slow: true,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: brokerKill, n: g.IntN(7)}, act{do: awaitLog, arg: busTrouble}, act{do: brokersHeal})
		},
	},
	{
		// Clients still reach the broker, and the broker still claims to lead.
		name: "partition leader cut off from the others", uses: []string{theBus}, slow: true,
		add: func(g *generator, from, to int) {
			acts := []act{{do: brokerCut, n: g.IntN(7)}, {do: awaitLog, arg: busTrouble}, {do: brokersHeal}}
			if g.IntN(2) == 0 {
				acts = []act{acts[0], {do: killNow}, {do: awaitLog, arg: synced}, acts[2]}
			}
			g.during(from, to, acts...)
		},
	},
	{
		name: "majority of the brokers lost", uses: []string{theBus}, slow: true, felt: busTrouble,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: []verb{brokersKill, brokersFreeze, replicasFreeze}[g.IntN(3)], n: g.IntN(7)}, act{do: awaitLog, arg: busTrouble}, act{do: brokersHeal})
		},
	},
	olderDisk("end of the event topic lost in an unclean election", topicName),
	{
		name: "brokers restarted one by one", uses: []string{theBus}, slow: true,
		add: func(g *generator, from, to int) { g.during(from, to, act{do: rollBrokers}) },
	},
	{
		name: "partition leader killed while a follower lags", uses: []string{theBus}, slow: true,
		add: func(g *generator, from, to int) {
			n := g.IntN(7)
			g.during(from, to, act{do: replicaHold, n: n}, act{do: awaitLog, arg: busTrouble}, act{do: brokerKill, n: n}, act{do: brokersHeal})
		},
	},
	olderDisk("end of the checkpoint topic lost in an unclean election", checkpointName),
	{
		name: "partition leader frozen", uses: []string{theBus}, slow: true,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: brokerFreeze, n: g.IntN(7)}, act{do: awaitLog, arg: busTrouble}, act{do: brokersHeal})
		},
	},
	{
		name: "controller lost, then a partition leader", uses: []string{theBus}, slow: true,
		add: func(g *generator, from, to int) {
			acts := []act{{do: controllerEnd}, {do: brokerKill, n: g.IntN(7)}, {do: awaitLog, arg: busTrouble}, {do: brokersHeal}}
			if g.IntN(3) == 0 {
				acts = []act{acts[0], {do: killNow}, {do: awaitLog, arg: synced}, acts[3]}
			}
			g.during(from, to, acts...)
		},
	},
	{
		name: "partitions reassigned", uses: []string{theBus}, slow: true, alone: topicsChange,
		add: func(g *generator, from, to int) { g.during(from, to, act{do: moveReplicas, n: g.IntN(3)}) },
	},
	olderDisk("ends of both topics lost in an unclean election", topicName+","+checkpointName),
	{
		name: "partition leaders moved", uses: []string{theBus}, alone: topicsChange,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: moveLeaders, n: g.IntN(3)}, act{do: moveLeaders, n: g.IntN(3)})
		},
	},
	{
		name: "coordinator killed during a takeover", uses: []string{theBus, theForwarder}, slow: true,
		add: func(g *generator, from, to int) {
			g.plan.settings.kafka.idempotent = true
			g.during(from, to, act{do: killNow}, act{do: coordinatorKill}, act{do: awaitLog, arg: synced}, act{do: brokersHeal})
		},
	},
}

// topicsChange are the kinds that delete, create or change topics.
var topicsChange = []string{"event topic deleted", "checkpoint topic deleted", "both topics deleted", "partitions added", "records deleted", topicChanges}

// olderDisk returns a kind in which a broker with an older disk becomes the leader of topics.
func olderDisk(name, topics string) kind {
	return kind{
		name: name, refreshed: true, uses: []string{theBus, theForwarder, another, theLeader}, slow: true, long: true, felt: busTrouble,
		alone: append([]string{restored, purged, beforeOne}, topicsChange...),
		add: func(g *generator, from, to int) {
			g.plan.settings.kafka.idempotent = true
			copied, elected := act{do: copyDisk, n: g.IntN(7)}, act{do: electOlder, arg: topics}
			g.during(from, to, [][]act{
				{copied, elected, {do: awaitReport}}, {copied, elected, {do: awaitReport}}, {copied, {do: stop}, elected, {do: start}}, {copied, elected, {do: killNow}},
			}[g.IntN(4)]...)
		},
	}
}

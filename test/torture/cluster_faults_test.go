package torture

import "time"

// The faults of a bus that is a cluster of servers. Every seed of a round with a cluster has at
// least one of them.

// clusterKinds returns the faults of a cluster.
func (s sink) clusterKinds() []kind {
	if s == onKafka {
		return kafkaClusterKinds
	}
	return natsClusterKinds
}

// singleOnly returns the names of the kinds that a round with a cluster leaves out.
func (s sink) singleOnly() []string {
	if s == onKafka {
		return []string{eventsCut, checkpointCut, bothCut} // they cut the files of the only broker
	}
	return []string{storeBack, storeEmpty, purged, beforeOne}
}

// The actions that concern the servers of a NATS cluster. The leader is the stream leader.
const (
	leaderKill     verb = "kill the stream leader"
	leaderFreeze   verb = "freeze the stream leader"
	leaderCut      verb = "cut off the stream leader" // arg is silently, or ""
	followerFreeze verb = "freeze a follower"
	followerCut    verb = "cut off a follower" // arg as above
	followerLeads  verb = "thaw the servers and kill the stream leader"
	followersHold  verb = "hold back the followers"
	majorityKill   verb = "kill two servers"
	allCut         verb = "cut off all servers from one another" // arg as above
	rolling        verb = "restart the servers one by one"       // arg is orderly, upgraded, or ""
	stepDowns      verb = "make the stream leader step down"     // n times
	leaderAwait    verb = "await another stream leader"
	clusterHeal    verb = "mend the cluster"
	serverKill     verb = "kill a server" // n is its index
	clusterAgree   verb = "await that all servers have the same messages"

	copyDisks    verb = "copy the disks of two servers"
	diskBack     verb = "restore the disk of a server from the copy"       // arg is leaderKill, or ""
	majorityBack verb = "restore the disks of two servers from the copies" // arg is emptied3, outrun, or ""
	aheadEmpty   verb = "empty the servers that are ahead"
)

const (
	silently = "silently"
	emptied3 = "and empty the third one"
	outrun   = "and keep the third one from leading"
	upgraded = "with the current release instead of the previous one"
)

// electionLimit is the maximum wait for another leader. A server notices within 10 s that it no longer
// leads, and an election takes 4 to 9 s.
const electionLimit = 25 * time.Second

var natsClusterKinds = []kind{
	{
		name: "stream leader killed", uses: []string{theBus}, felt: busTrouble, slow: true,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: leaderKill}, act{do: leaderAwait}, act{do: clusterHeal})
		},
	},
	{
		name: "stream leader frozen", uses: []string{theBus}, felt: busTrouble, slow: true,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: leaderFreeze}, act{do: leaderAwait}, act{do: clusterHeal})
		},
	},
	{
		name: "stream leader cut off from the others", uses: []string{theBus}, felt: busTrouble, slow: true,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: leaderCut, arg: g.silence()}, act{do: leaderAwait}, act{do: clusterHeal})
		},
	},
	{
		name: "follower cut off from the others", uses: []string{theBus}, slow: true,
		add: func(g *generator, from, to int) {
			acts := []act{{do: followerCut, arg: g.silence()}, {do: clusterHeal}}
			if g.IntN(2) == 0 { // the server returns to a cluster that elects another leader
				acts = []act{{do: followerCut, arg: g.silence()}, {do: stepDowns, n: 1}, {do: clusterHeal}, {do: leaderKill}, {do: leaderAwait}, {do: clusterHeal}}
			}
			g.during(from, to, acts...)
		},
	},
	{
		name: "majority of the servers lost", uses: []string{theBus}, felt: busTrouble, slow: true,
		add: func(g *generator, from, to int) {
			lost := act{do: majorityKill}
			if g.IntN(2) == 0 {
				lost = act{do: allCut, arg: g.silence()}
			}
			g.during(from, to, lost, act{do: awaitLog, arg: busTrouble}, act{do: clusterHeal})
		},
	},
	{
		name: "servers restarted one by one", uses: []string{theBus}, felt: busTrouble, slow: true,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: rolling, arg: []string{"", orderly}[g.IntN(2)]})
		},
	},
	{
		name: "frozen follower elected leader", uses: []string{theBus}, felt: busTrouble, slow: true,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: followerFreeze}, act{do: followerLeads}, act{do: leaderAwait}, act{do: clusterHeal})
		},
	},
	{
		name: "forwarder restarted while followers lag", uses: []string{theBus, theForwarder, theLeader}, slow: true,
		add: func(g *generator, from, to int) {
			g.plan.settings.refresh = frequently
			g.during(from, to, act{do: followersHold}, act{do: killNow}, act{do: awaitLog, arg: synced}, act{do: clusterHeal})
		},
	},
	{
		name: "server restarted with an older disk", uses: []string{theBus}, slow: true,
		add: func(g *generator, from, to int) {
			acts := []act{{do: copyDisks}, {do: diskBack}, {do: clusterHeal}}
			if g.IntN(2) == 0 {
				acts = []act{{do: copyDisks}, {do: diskBack, arg: string(leaderKill)}, {do: leaderAwait}, {do: clusterHeal}}
			}
			g.during(from, to, acts...)
		},
	},
	{
		name: "majority of the servers restarted with older disks", uses: []string{theBus, theForwarder, another, theLeader}, slow: true, alone: []string{restored}, felt: busTrouble,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: copyDisks}, act{do: majorityBack, arg: []string{"", emptied3}[g.IntN(2)]}, act{do: aheadEmpty})
		},
	},
	{
		name: "stream leader stepped down repeatedly", uses: []string{theBus}, slow: true,
		add: func(g *generator, from, to int) {
			g.during(from, to, act{do: stepDowns, n: 3 + g.IntN(5)})
		},
	},
}

// silence draws whether servers that are cut off from one another notice at once.
func (g *generator) silence() string { return []string{"", silently}[g.IntN(2)] }

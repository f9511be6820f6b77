package torture

import (
	"fmt"
	"slices"
)

// round is a run of seeds on one bus, with or without leader election.
type round struct {
	sink     sink
	replicas int  // forwarders with leader election; 0 for none
	foreign  bool // with a foreign writer
	cluster  int  // servers in the cluster of the bus; 0 for a single server
}

// rounds are the rounds in the report.
var rounds = []round{
	{onNATS, 0, false, 0}, {onKafka, 0, false, 0}, {onNATS, 2, false, 0}, {onNATS, 3, false, 0}, {onKafka, 2, false, 0}, {onKafka, 3, false, 0},
	{onNATS, 0, true, 0}, {onKafka, 0, true, 0},
	{onNATS, 0, false, 3}, {onKafka, 0, false, 3},
}

// String returns the name of the round in the report and in test names.
func (r round) String() string {
	name := string(r.sink)
	if r.replicas > 0 {
		name += fmt.Sprintf(" with %d replicas", r.replicas)
	}
	if r.foreign {
		name += " with a foreign writer"
	}
	if r.cluster > 0 {
		name += fmt.Sprintf(" with a cluster of %d", r.cluster)
	}
	return name
}

// title returns the title of the round's section in the report.
func (r round) title() string {
	title := map[sink]string{onNATS: "NATS", onKafka: "Kafka"}[r.sink]
	if r.replicas > 0 {
		title += fmt.Sprintf(", %d replicas", r.replicas)
	}
	if r.foreign {
		title += ", with a foreign writer"
	}
	if r.cluster > 0 {
		title += fmt.Sprintf(", a cluster of %d %s", r.cluster, map[sink]string{onNATS: "servers", onKafka: "brokers"}[r.sink])
	}
	return title
}

// firstRound returns the number of seeds that together have every kind of fault once. With replicas,
// they have every fault of a leader. With a cluster, they have every fault of a cluster. With a
// foreign writer, one seed is enough.
func (r round) firstRound() uint64 {
	if r.foreign {
		return 1
	}
	if turns := r.turns(); len(turns) > 0 {
		return uint64(len(turns))
	}
	return uint64((len(r.kinds()) + perSeed - 1) / perSeed)
}

// turns returns the kinds that the seeds of the round have in turn, one kind for each seed. It returns nil if
// these are all kinds of the round.
func (r round) turns() []kind {
	switch {
	case r.cluster > 0:
		return r.sink.clusterKinds()
	case r.replicas > 0:
		return leaderKinds
	}
	return nil
}

// kinds returns the faults of the round. With leader election, it leaves out the faults that need two
// forwarders without leader election, and the faults that purge deletes.
func (r round) kinds() []kind {
	return slices.Concat(r.turns(), slices.DeleteFunc(slices.Clone(r.sink.kinds()), func(k kind) bool {
		return r.lacks(k) || r.replicas > 0 && (slices.Contains(k.uses, another) || k.name == purged || k.name == beforeOne)
	}))
}

// lacks reports whether the round leaves out a kind because its bus is a cluster.
func (r round) lacks(k kind) bool {
	return r.cluster > 0 && slices.Contains(r.sink.singleOnly(), k.name)
}

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
}

// rounds are the rounds in the report.
var rounds = []round{
	{onNATS, 0, false}, {onKafka, 0, false}, {onNATS, 2, false}, {onNATS, 3, false}, {onKafka, 2, false}, {onKafka, 3, false},
	{onNATS, 0, true}, {onKafka, 0, true},
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
	return name
}

// title returns the name for readers.
func (r round) title() string {
	title := map[sink]string{onNATS: "NATS", onKafka: "Kafka"}[r.sink]
	if r.replicas > 0 {
		title += fmt.Sprintf(", %d replicas", r.replicas)
	}
	if r.foreign {
		title += ", with a foreign writer"
	}
	return title
}

// firstRound returns the last of the seeds that together have every kind of fault once: with
// replicas, every fault of a leader; with a foreign writer, one.
func (r round) firstRound() uint64 {
	if r.foreign {
		return 1
	}
	if r.replicas > 0 {
		return uint64(len(leaderKinds))
	}
	return uint64((len(r.kinds()) + perSeed - 1) / perSeed)
}

// kinds returns the faults of the round. With leader election, the faults that need two forwarders
// without one are left out.
func (r round) kinds() []kind {
	if r.replicas == 0 {
		return r.sink.kinds()
	}
	return slices.Concat(leaderKinds, slices.DeleteFunc(slices.Clone(r.sink.kinds()), func(k kind) bool {
		return slices.Contains(k.uses, another) || k.name == purged || k.name == beforeOne
	}))
}

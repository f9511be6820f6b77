package torture

import (
	"fmt"
	"slices"
)

// round is a run of seeds: over one bus, with forwarders that elect a leader or with such
// that do not.
type round struct {
	sink     sink
	replicas int  // 0 for forwarders that do not
	foreign  bool // somebody else writes to the bus
}

// rounds are those that have a part in the report.
var rounds = []round{
	{onNATS, 0, false}, {onKafka, 0, false}, {onNATS, 2, false}, {onNATS, 3, false}, {onKafka, 2, false}, {onKafka, 3, false},
	{onNATS, 0, true}, {onKafka, 0, true},
}

// String names the round, in the report and in the names of tests.
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

// title is for people.
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

// firstRound is the last of the seeds that have every kind of fault once between them;
// with replicas, every kind that is about their leader; with a foreign writer, the one.
func (r round) firstRound() uint64 {
	if r.foreign {
		return 1
	}
	if r.replicas > 0 {
		return uint64(len(leaderKinds))
	}
	return uint64((len(r.kinds()) + perSeed - 1) / perSeed)
}

// kinds are the faults of the round. Those that need a second forwarder without an
// election are left out where there is one.
func (r round) kinds() []kind {
	if r.replicas == 0 {
		return r.sink.kinds()
	}
	return slices.Concat(leaderKinds, slices.DeleteFunc(slices.Clone(r.sink.kinds()), func(k kind) bool {
		return slices.Contains(k.uses, another) || k.name == purged || k.name == beforeOne
	}))
}

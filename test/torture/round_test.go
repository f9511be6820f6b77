package torture

import (
	"fmt"
	"slices"
)

// round is a run of seeds: over one bus, with forwarders that elect a leader or with such
// that do not.
type round struct {
	sink     sink
	replicas int // 0 for forwarders that do not
}

// rounds are those that have a part in the report.
var rounds = []round{{onNATS, 0}, {onKafka, 0}, {onNATS, 2}, {onNATS, 3}, {onKafka, 2}, {onKafka, 3}}

// String names the round, in the report and in the names of tests.
func (r round) String() string {
	if r.replicas == 0 {
		return string(r.sink)
	}
	return fmt.Sprintf("%s with %d replicas", r.sink, r.replicas)
}

// title is for people.
func (r round) title() string {
	title := map[sink]string{onNATS: "NATS", onKafka: "Kafka"}[r.sink]
	if r.replicas > 0 {
		title += fmt.Sprintf(", %d replicas", r.replicas)
	}
	return title
}

// firstRound is the last of the seeds that have every kind of fault once between them;
// with replicas, every kind that is about their leader.
func (r round) firstRound() uint64 {
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

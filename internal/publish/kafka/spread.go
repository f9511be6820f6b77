package kafka

import (
	"maps"
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
)

// A topic can get more partitions, but the events of an object must stay in one partition,
// and so must its entries in the checkpoint topic. So the recorded state of a topic has the
// numbers of partitions in use. Anyone who can write to the checkpoint topic can forge that
// state, but not the partitions that most objects are in.

// placement is a record in a partition that was chosen by a number, modulo the partitions in
// use.
type placement struct{ number, partition int }

// maxMisplaced is the number of records elsewhere that spreadOf tolerates if no number of
// partitions is recorded, because the topic may be new. Such records can be another
// writer's, and must not keep partitions from being used.
const maxMisplaced = 8

// spreadOf returns the number n of partitions in use, where each record is in the partition of its
// number modulo n. This is the recorded n, 0 for none, limited to the present number of partitions,
// unless another n fits more of the records.
func spreadOf(recorded, partitions int, all []placement) int {
	best, few := partitions, maxMisplaced
	if recorded > 0 {
		best, few = min(recorded, partitions), 0
	}
	fits := func(n int) (count int) {
		for _, p := range all {
			if p.number%n == p.partition {
				count++
			}
		}
		return count
	}
	most := fits(best) + few
	for n := partitions; n > 0 && most < len(all); n-- {
		if count := fits(n); count > most {
			best, most = n, count
		}
	}
	return best
}

// keySpread returns the number of partitions that the keys of the topic are spread over. It
// trusts the recorded number only if a record of the previous writer vouches for the
// entries of a partition.
func (a *recovery) keySpread() int {
	recorded := a.state.Partitions
	if !slices.ContainsFunc(a.tails, func(c tail) bool { return c.trusted }) {
		recorded = 0
	}
	all := make([]placement, 0, len(a.entries))
	for key, e := range a.entries {
		if e.Type != event.WriterStarted && a.holds(e) {
			all = append(all, placement{binding.Hash([]byte(key)), e.Partition})
		}
	}
	for p, c := range a.tails {
		for key, last := range c.last {
			if e, recorded := a.entries[key]; last.entry != (entry{}) && (!recorded || e.Partition != p) {
				all = append(all, placement{binding.Hash([]byte(key)), p})
			}
		}
	}
	return spreadOf(recorded, len(a.t.senders), all)
}

// dropStrays drops records outside the partition of their key, if that partition has a
// record of the key too. They are another writer's.
func (a *recovery) dropStrays() {
	for p, c := range a.tails {
		isStray := func(key string) bool {
			home := binding.Partition([]byte(key), a.t.spread)
			return home != p && a.has(home, key)
		}
		maps.DeleteFunc(c.last, func(key string, _ lastRecord) bool { return isStray(key) })
		maps.DeleteFunc(c.invalid, func(key string, _ entry) bool { return isStray(key) })
	}
}

// has reports whether a partition holds a record of a key.
func (a *recovery) has(p int, key string) bool {
	if _, found := a.tails[p].last[key]; found {
		return true
	}
	e, recorded := a.entries[key]
	return recorded && e.Partition == p && a.holds(e)
}

// holds reports whether the topic still holds the record of an entry.
func (a *recovery) holds(e entry) bool {
	return e.Partition < len(a.tails) && a.tails[e.Partition].trusted && e.Offset >= a.start[e.Partition]
}

// recordSpread returns the number of partitions of the checkpoint topic that entries are
// spread over.
func recordSpread(states map[string]topicState, parts []*checkpointPart) int {
	recorded := len(parts)
	for _, state := range states {
		if state.Records > 0 {
			recorded = min(recorded, state.Records)
		}
	}
	var all []placement
	for home, part := range parts {
		for _, e := range part.entries {
			all = append(all, placement{e.Partition, home})
		}
	}
	return spreadOf(recorded, len(parts), all)
}

// setSpread determines the number of partitions that the keys of a topic are spread over.
func (s *session) setSpread(a *recovery) {
	t := a.t
	t.spread = a.keySpread()
	if recorded := a.state.Partitions; recorded > 0 && t.spread != min(recorded, len(t.senders)) {
		s.b.log.Warn("another writer recorded a wrong number of partitions for the topic, ignoring it", "topic", t.name, "recorded", recorded, "used", t.spread)
	}
	if t.spread < len(t.senders) {
		s.b.log.Warn("new partitions of the topic are not used, because the events of an object stay in one partition; to use them, publish to another topic (KUBERELAY_KAFKA_TOPIC)",
			"topic", t.name, "partitions", len(t.senders), "used", t.spread)
	}
}

// recordState records the state of a topic.
func (s *session) recordState(t *topic) {
	s.recorder.state(topicState{Topic: t.name, Partitions: t.spread, Records: s.recorder.spread, Session: s.id, Writer: s.b.opts.Writer})
}

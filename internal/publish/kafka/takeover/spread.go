package takeover

import (
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
)

// A topic can gain partitions, but the events of an object must stay in one partition, and so must
// the object's entries in the checkpoint topic. So the recorded state of a topic contains the
// numbers of partitions in use. Anyone who can write to the checkpoint topic can forge that state.
// They can't forge the partitions that hold the records of most objects.

// Home returns the partition of the checkpoint topic that holds the entries of an event partition.
// records is [Checkpoint.Records].
func Home(partition, records int) int { return partition % records }

// placement is the partition of a record, and the number that selects it: the hash of the key or, for
// a checkpoint record, the event partition. With n partitions in use, a record belongs in the partition
// number % n.
type placement struct{ number, partition int }

// maxMisplaced is the number of records in a wrong partition that spreadOf ignores if the number of
// partitions in use isn't recorded. In that case, the topic might be new, and another writer might have
// written these records. That writer must not be able to reduce the number of partitions in use.
const maxMisplaced = 8

// spreadOf returns the number of partitions in use.
//
// partitions is the current number of partitions. By default, the result is the lower of recorded
// and partitions, or partitions if recorded is 0. A number n fits a record if the record is in the
// partition that n selects. Another n replaces the default only if n fits more of the records: at
// least one more, or at least maxMisplaced+1 more if recorded is 0.
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

// recordSpread returns the number of checkpoint partitions that entries are spread over.
func (c *Checkpoint) recordSpread() int {
	recorded := len(c.parts)
	for _, state := range c.states {
		if state.Records > 0 {
			recorded = min(recorded, state.Records)
		}
	}
	var all []placement
	for home, part := range c.parts {
		for _, e := range part.entries {
			all = append(all, placement{e.Partition, home})
		}
	}
	return spreadOf(recorded, len(c.parts), all)
}

// keySpread returns the number of partitions that the keys of the topic are spread over. It trusts
// the recorded number only if the log of some partition matched the checkpoint.
func (t *Topic) keySpread() int {
	recorded := 0
	all := make([]placement, 0, len(t.entries))
	for key, e := range t.entries {
		if e.Type != event.WriterStarted && t.holds(e) {
			all = append(all, placement{binding.Hash([]byte(key)), e.Partition})
		}
	}
	for n, p := range t.parts {
		if p.trusted {
			recorded = t.state.Partitions
		}
		for key, last := range p.last {
			if e, recorded := t.entries[key]; last.entry != none && (!recorded || e.Partition != n) {
				all = append(all, placement{binding.Hash([]byte(key)), n})
			}
		}
	}
	return spreadOf(recorded, len(t.parts), all)
}

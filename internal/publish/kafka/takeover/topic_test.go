package takeover

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// keyIn returns a key of topic t whose events belong in the given partition, out of three.
func keyIn(partition int) string {
	for n := 0; ; n++ {
		if key := keyOf("t", n); binding.Partition([]byte(key), 3) == partition {
			return key
		}
	}
}

// TestAnEntryBesideTheRightOne verifies that another writer's entry does not replace the right one
// if it is in a checkpoint partition that holds no entries of the object.
func TestAnEntryBesideTheRightOne(t *testing.T) {
	for _, forged := range []int{0, 2} {
		c, key := NewCheckpoint(3), keyIn(1)
		right, other := eventAt(5), eventAt(7)
		right.Partition, other.Partition = 1, forged
		c.Read(0, 0, "", record.Checkpoint{Kind: record.OfTopic, State: record.State{Topic: "t", Partitions: 3, Records: 3}})
		c.Read(1, 0, key, record.Checkpoint{Kind: record.OfEvent, Entry: right})
		c.Read(forged, 1, key, record.Checkpoint{Kind: record.OfEvent, Entry: other})
		c.Finish()
		if got := c.Take("t", 3).Entries()[key]; got != right {
			t.Errorf("with a forged entry in partition %d: got %+v, want %+v", forged, got, right)
		}
	}
}

// TestARecordInAnotherPartition verifies that a record outside the partition of its key counts only
// if the object has no other record. Only another writer writes such records.
func TestARecordInAnotherPartition(t *testing.T) {
	topic := NewTopic("t", 3, 3)
	web, invented := keyIn(1), keyOf("t", 100)
	elsewhere := (binding.Partition([]byte(invented), 3) + 1) % 3
	in := func(key string, partition int) Record {
		r := recordOf(key, eventAt(5))
		r.Entry.Partition = partition
		return r
	}
	logs := map[int][]Record{0: {in(web, 0)}, 1: {in(web, 1)}, 2: {in(web, 2)}}
	logs[elsewhere] = append(logs[elsewhere], in(invented, elsewhere))
	for p := range 3 {
		part := topic.Begin(p, 0, markerAt(20, "session"))
		for read, more := part.Next(); more; read, more = part.Next() {
			give(part, read, logs[p])
		}
	}
	topic.Lookups()
	topic.Update(func(Write) {})
	if got := topic.Entries()[web]; topic.Spread != 3 || got.Partition != 1 {
		t.Errorf("the object is in partition %d, of %d in use", got.Partition, topic.Spread)
	}
	if got := topic.Entries()[invented]; got.Partition != elsewhere || got == none {
		t.Errorf("an object without another record is known as %+v", got)
	}
}

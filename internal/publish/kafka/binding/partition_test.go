package binding

import (
	"math"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestMurmur2 uses the cases of testMurmur2 in Kafka's UtilsTest.java.
func TestMurmur2(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("%q: got %d, want %d", key, got, want)
		}
	}
}

// others returns the partition that each of the other clients chooses for a key.
func others(key []byte, partitions int) map[string]int {
	all := make([]int, partitions)
	for i := range all {
		all[i] = i
	}
	return map[string]int{
		"franz-go": kgo.StickyKeyPartitioner(nil).ForTopic("topic").Partition(&kgo.Record{Key: key}, partitions),
		"kafka-go": kafkago.Murmur2Balancer{}.Balance(kafkago.Message{Key: key}, all...),
	}
}

func TestPartition(t *testing.T) {
	used := map[int]bool{}
	for _, m := range messages(t) {
		for _, partitions := range []int{1, 2, 3, 12, 100, 1024} {
			key := mustEncode(t, m.message, false).Key
			got := Partition(key, partitions)
			used[got] = true
			for client, want := range others(key, partitions) {
				if got != want {
					t.Errorf("%s among %d: got %d, %s has %d", key, partitions, got, client, want)
				}
			}
		}
	}
	if len(used) < 5 {
		t.Errorf("only the partitions %v were chosen", used)
	}
	if got := Partition([]byte("21"), math.MaxInt32); got != -973932308&math.MaxInt32 {
		t.Errorf("a negative hash goes to %d", got)
	}
}

func FuzzPartition(f *testing.F) {
	f.Add([]byte{}, uint16(3))
	f.Add([]byte("a"), uint16(1))
	f.Add([]byte("prod-eu/apps/deployments/default/web"), uint16(12))
	f.Add([]byte("\xff\xfe\xfd"), uint16(1000))
	f.Fuzz(func(t *testing.T, key []byte, n uint16) {
		if key == nil {
			key = []byte{} // the other clients choose a random partition for a nil key
		}
		partitions := int(n)%2000 + 1
		got := Partition(key, partitions)
		for client, want := range others(key, partitions) {
			if got != want {
				t.Errorf("got %d, %s has %d", got, client, want)
			}
		}
	})
}

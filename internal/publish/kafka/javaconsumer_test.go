package kafka

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// javaConsumer is the directory of JavaConsumer.java, whose comment describes the program.
const javaConsumer = "testdata/javaconsumer"

// javaRecord is one line of JavaConsumer's output.
type javaRecord struct {
	Reader     string // plain, committed or cloudevents
	Topic      string
	Partition  int32
	Offset     int64
	Timestamp  int64
	Key        []byte
	Headers    []javaHeader
	Attributes map[string]string // only from the reader cloudevents
	Value      []byte            // with the reader cloudevents, the event's data
}

func (r javaRecord) partition() int32 { return r.Partition }

type javaHeader struct {
	Key   string
	Value []byte
}

// runJavaConsumer returns what JavaConsumer reads from the topics.
func runJavaConsumer(t *testing.T, addr string, topics ...string) (records []javaRecord) {
	t.Helper()
	for _, line := range kafkabrokertest.RunJava(t, javaConsumer, "JavaConsumer.java", append([]string{addr}, topics...)...) {
		var r javaRecord
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("the consumer in Java wrote %q: %v", line, err)
		}
		records = append(records, r)
	}
	return records
}

// TestTables_Slow verifies that the rows of a KTable and of a versioned KTable are the existing objects,
// whichever writer published the deletes, and even if the clock of the first writer was ahead. The
// claim, the markers of two writers and of first syncs, and consistency points are not rows.
func TestTables_Slow(t *testing.T) {
	w := newWriters(t, 1)
	b := w.open()
	w.flushed(b).topics[w.opts.Topic].senders[0].NotBefore(time.Now().Add(30 * time.Minute))
	for _, m := range w.control("uid-1") {
		w.mustPublish(b, m)
	}
	last := w.publishSome(b, "web-", 6)
	want := map[string]string{}
	key := func(k event.Key) string { return event.PartitionKey(w.opts.Cluster, k) }
	put := func(m *event.Message) {
		if want[key(m.Key)] = string(m.Data); m.Acked.Deleted {
			delete(want, key(m.Key))
		}
		last[m.Key] = w.mustPublish(b, m)
	}
	for k, position := range last {
		put(w.messageOf(k, 2, position))
	}
	object := func(n int) event.Key { return w.message(fmt.Sprint("web-", n), 1, 0).Key }
	put(w.removal(event.Deleted, object(0), last[object(0)]))
	put(w.removal(event.Deleted, object(1), last[object(1)]))
	crash(b)
	b = w.open()
	for _, m := range w.control("uid-2") {
		w.mustPublish(b, m)
	}
	put(w.messageOf(object(1), 3, last[object(1)]))
	put(w.messageOf(object(2), 3, last[object(2)]))
	put(w.removal(event.Deselected, object(3), last[object(3)]))
	put(w.removal(event.Deleted, object(4), last[object(4)]))
	for kind, rows := range kafkabrokertest.Tables(t, w.opts.Broker.Addrs[0], w.opts.Topic) {
		if diff := cmp.Diff(want, rows); diff != "" {
			t.Errorf("rows of the %s (-objects +rows):\n%s", kind, diff)
		}
	}
}

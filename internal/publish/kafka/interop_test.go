package kafka

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	kafkasarama "github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	cebinding "github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestInterop_Slow verifies that independent consumers read the same events, in the same order for each
// object, in either mode and with every compression. The consumers are the CloudEvents SDK's
// receiver for Go, a plain Java consumer, a Java consumer that reads only committed records, and
// the CloudEvents SDK's deserializer for Java. To these consumers, idempotent batches are like any
// other.
func TestInterop_Slow(t *testing.T) {
	addr := kafkabrokertest.Shared(t).Addr()
	published := map[string]*publication{}
	var topics []string
	for _, mode := range []ContentMode{Binary, Structured} {
		for codec := recordbatch.None; codec <= recordbatch.Zstd; codec++ {
			p := newPublication(t, mode, codec)
			published[p.topic] = p
			topics = append(topics, p.topic)
		}
	}
	for _, topic := range topics {
		t.Run(topic+"/Go SDK", func(t *testing.T) { published[topic].checkSDK(t, addr) })
	}
	read := map[string]map[string][]javaRecord{} // by topic and reader
	for _, r := range runJavaConsumer(t, addr, topics...) {
		if read[r.Topic] == nil {
			read[r.Topic] = map[string][]javaRecord{}
		}
		read[r.Topic][r.Reader] = append(read[r.Topic][r.Reader], r)
	}
	for _, topic := range topics {
		for _, reader := range []string{"plain", "committed"} {
			t.Run(topic+"/Java "+reader, func(t *testing.T) { published[topic].checkRecords(t, read[topic][reader]) })
		}
		t.Run(topic+"/Java cloudevents", func(t *testing.T) { published[topic].checkEvents(t, read[topic]["cloudevents"]) })
	}
}

// publication has the messages that were published to a topic.
type publication struct {
	topic   string
	mode    ContentMode
	records []*kgo.Record // all records of the topic, sorted by partition
	at      map[uint64]*event.Message
}

func newPublication(t *testing.T, mode ContentMode, codec recordbatch.Compression) *publication {
	t.Helper()
	o := testOptions(kafkabrokertest.Shared(t).Addr())
	p := &publication{topic: kafkabrokertest.TopicName(fmt.Sprintf("interop.%s.%s", mode, codec)), mode: mode, at: map[uint64]*event.Message{}}
	o.Topic, o.TransactionalID, o.ContentMode, o.Compression = p.topic, p.topic, mode, codec
	bus := openBus(t, o)
	if err := bus.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	const versions = 3
	last := map[event.Key]uint64{}
	for version := 1; version <= versions; version++ {
		for at, m := range p.publish(t, bus, interopMessages(t, version, last)) {
			p.at[at], last[m.Key] = m, at
		}
	}
	if err := bus.Close(); err != nil {
		t.Error(err)
	}
	p.records = byPartition(readTopic(t, o.Broker.Addrs[0], p.topic), func(r *kgo.Record) int32 { return r.Partition })
	p.checkBatches(t, codec)
	return p
}

// publish publishes messages of different objects concurrently and returns them by
// position.
func (p *publication) publish(t *testing.T, bus *Bus, messages []*event.Message) map[uint64]*event.Message {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	at := map[uint64]*event.Message{}
	for _, m := range messages {
		all.Add(1)
		bus.Publish(t.Context(), m, func(position uint64, err error) {
			defer all.Done()
			if err != nil {
				t.Errorf("publish %s: %v", m.ID, err)
			}
			mu.Lock()
			defer mu.Unlock()
			at[position] = m
		})
	}
	all.Wait()
	if len(at) != len(messages) {
		t.Fatalf("%d messages have got %d positions", len(messages), len(at))
	}
	return at
}

// interopMessages returns events of many objects, and one event of each unusual kind.
func interopMessages(t *testing.T, version int, last map[event.Key]uint64) []*event.Message {
	t.Helper()
	var messages []*event.Message
	for i := range 60 {
		o := publishtest.Object{Name: fmt.Sprintf("object-%d", i), Version: version, Data: strings.Repeat("é <b> & 🙂 ", 2*i)}
		o.Deleted = i%10 == 0 && version == 3
		messages = append(messages, o.Message(t, last[o.Key()]))
	}
	odd := event.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Kind: "ClusterRole"}
	for _, name := range []string{"système:\"admin\" 100%\r\nce_id: x 🙂", "truncated", "gone"} {
		c := event.Change{
			Type: event.Updated, Cause: event.CauseReconcile, Key: odd.Key("", name), Resource: odd, Epoch: 2, Previous: "1",
			Observed: time.Date(2026, 3, 4, 5, 6, 7, 890123456, time.FixedZone("CET", 3600)),
			Object: &event.Object{
				APIVersion: odd.APIVersion(), Kind: odd.Kind, Name: name, UID: "6f1b", ResourceVersion: fmt.Sprint(version),
				Body: event.JSON([]byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"uid":"6f1b"},"rules":[{"n":10000000000000000}]}`)),
			},
			Truncated: name == "truncated",
		}
		if name == "gone" {
			c.Type, c.Object.Body = event.Deleted, event.Body{}
		}
		m, err := event.Builder{Cluster: publishtest.Cluster}.Message(c)
		if err != nil {
			t.Fatal(err)
		}
		m.Expected = last[m.Key]
		messages = append(messages, m)
	}
	marker, err := event.Builder{Cluster: publishtest.Cluster}.Marker(event.SnapshotCompleted, publishtest.Resource, fmt.Sprint(version), 3, time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	changed := publishtest.Changed(t, "changed", version+1, 0)
	changed.Expected = last[changed.Key]
	return append(messages, marker, changed)
}

// checkBatches verifies that the topic holds the records that the test is about: compressed batches
// with a producer ID, which contain the published messages and the writer's markers.
func (p *publication) checkBatches(t *testing.T, codec recordbatch.Compression) {
	t.Helper()
	compressed, markers, tombstones := 0, 0, 0
	for _, r := range p.records {
		if r.ProducerID < 0 {
			t.Errorf("offset %d of partition %d has no producer", r.Offset, r.Partition)
		}
		if r.Attrs.CompressionType() == uint8(codec) {
			compressed++
		}
		m := p.at[position(int(r.Partition), r.Offset)]
		switch {
		case r.Value == nil && isControl(r):
			if got, err := binding.DecodeControl(recordOf(r).Headers, nil); err != nil || m != nil && (got.ID != m.ID || string(got.Data) != string(m.Data)) {
				t.Errorf("offset %d of partition %d is read as %+v, %v; want %+v", r.Offset, r.Partition, got, err, m)
			}
			if m == nil {
				markers++
			}
			continue
		case r.Value == nil:
			if m := p.at[position(int(r.Partition), r.Offset-1)]; m == nil || !m.Acked.Deleted || string(r.Key) != m.Attribute("partitionkey") {
				t.Errorf("offset %d of partition %d is a tombstone of %s", r.Offset, r.Partition, r.Key)
			}
			tombstones++
			continue
		case m == nil:
			t.Errorf("offset %d of partition %d was not published", r.Offset, r.Partition)
			continue
		}
		got, err := decode(recordOf(r))
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(publishtest.Attributes(m), publishtest.Attributes(got)); diff != "" || string(r.Key) != m.Attribute("partitionkey") {
			t.Errorf("%s has key %q and attributes (-published +read):\n%s", m.ID, r.Key, diff)
		}
	}
	if len(p.records) != len(p.at)+markers+tombstones || markers != 3 || tombstones != 9 || compressed < len(p.at) {
		t.Errorf("%d records, %d of which with compression %s, %d markers and %d tombstones; %d were published", len(p.records), compressed, codec, markers, tombstones, len(p.at))
	}
}

// checkSDK reads the topic with the SDK's receiver.
func (p *publication) checkSDK(t *testing.T, addr string) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Session.Timeout = limit // otherwise, a member that is late reads the records again
	consumer, err := kafkasarama.NewConsumer([]string{addr}, config, p.topic, p.topic)
	if err != nil {
		t.Fatal(err)
	}
	opened, opening := make(chan error, 1), context.WithoutCancel(ctx)
	opening, stop := context.WithCancel(opening)
	go func() { opened <- consumer.OpenInbound(opening) }()
	byKey := map[string][]*cloudevents.Event{}
	for n := range p.records {
		message, err := consumer.Receive(ctx)
		if err != nil {
			t.Fatalf("after %d of %d records: %v", n, len(p.records), err)
		}
		e, err := cebinding.ToEvent(ctx, message)
		isEvent := message.ReadEncoding() != cebinding.EncodingUnknown // otherwise, the record is a tombstone
		if err != nil && isEvent {
			t.Fatal(err)
		}
		if err := message.Finish(nil); err != nil {
			t.Fatal(err)
		}
		if !isEvent {
			continue
		}
		key := fmt.Sprint(e.Extensions()["partitionkey"])
		byKey[key] = append(byKey[key], e)
	}
	stop()
	if err := <-opened; err != nil {
		t.Error(err)
	}
	if err := consumer.Close(ctx); err != nil {
		t.Error(err)
	}
	for _, r := range p.records {
		if r.Value == nil {
			continue
		}
		events := byKey[string(r.Key)]
		if len(events) == 0 {
			t.Fatalf("offset %d of partition %d: there is no further event with key %s", r.Offset, r.Partition, r.Key)
		}
		e := events[0]
		byKey[string(r.Key)] = events[1:]
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", e.ID(), err)
		}
		p.checkEvent(t, r, publishtest.SDKAttributes(t, e), e.Data())
	}
}

// checkEvent compares an event that a CloudEvents SDK has read from a record with the published
// message.
func (p *publication) checkEvent(t *testing.T, r *kgo.Record, attributes map[string]string, data []byte) {
	t.Helper()
	want := p.at[position(int(r.Partition), r.Offset)]
	if diff := gocmp.Diff(publishtest.Attributes(want), attributes); diff != "" {
		t.Errorf("%s: attributes (-want +got):\n%s", want.ID, diff)
	}
	wantData, gotData := string(want.Data), string(data)
	if p.mode == Structured { // the SDK parses and encodes the data
		wantData, gotData = publishtest.CanonicalJSON(t, want.Data), publishtest.CanonicalJSON(t, data)
	}
	if gotData != wantData {
		t.Errorf("%s: data is %s, want %s", want.ID, data, want.Data)
	}
}

// checkRecords compares the records that a Java consumer has read with those that franz-go has
// read.
func (p *publication) checkRecords(t *testing.T, got []javaRecord) {
	t.Helper()
	if len(got) != len(p.records) {
		t.Fatalf("read %d records, want %d", len(got), len(p.records))
	}
	for i, g := range byPartition(got, javaRecord.partition) {
		r := p.records[i]
		want := javaRecord{
			Reader: g.Reader, Topic: p.topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value,
		}
		for _, h := range r.Headers {
			want.Headers = append(want.Headers, javaHeader(h))
		}
		if !reflect.DeepEqual(want, g) {
			t.Fatalf("record (-want +got):\n%s", gocmp.Diff(want, g))
		}
	}
}

// checkEvents compares the events that the SDK's deserializer for Java has read with the published
// messages.
func (p *publication) checkEvents(t *testing.T, got []javaRecord) {
	t.Helper()
	if len(got) != len(p.records) {
		t.Fatalf("read %d events, want %d", len(got), len(p.records))
	}
	for i, r := range byPartition(got, javaRecord.partition) {
		if r.Partition != p.records[i].Partition || r.Offset != p.records[i].Offset {
			t.Fatalf("read offset %d of partition %d, want %d of %d", r.Offset, r.Partition, p.records[i].Offset, p.records[i].Partition)
		}
		if p.records[i].Value == nil {
			if r.Attributes != nil || r.Value != nil {
				t.Errorf("the tombstone at offset %d is read as %v", r.Offset, r.Attributes)
			}
			continue
		}
		p.checkEvent(t, p.records[i], r.Attributes, r.Value)
	}
}

// byPartition sorts records by partition, and keeps the order of the records of one partition.
func byPartition[R any](records []R, partition func(R) int32) []R {
	return slices.SortedStableFunc(slices.Values(records), func(a, b R) int { return cmp.Compare(partition(a), partition(b)) })
}

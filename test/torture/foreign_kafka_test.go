package torture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kuberelay/kuberelay/test/harness"
)

// forgeriesOnKafka are the forgeries that exist only on Kafka.
var forgeriesOnKafka = []forgery{
	{"impossible entries of the checkpoint", func(f *forger) []rawMessage {
		var all []rawMessage
		for range 1 + f.IntN(4) {
			all = append(all, f.entry(f.object(), []any{-1, 1 << 16, 3, math.MaxInt64, "x", 0, 4711}[f.IntN(7)], []any{-1, int64(1) << 48, int64(math.MaxInt64), "x", 1e300, 0}[f.IntN(6)]))
		}
		return all
	}},
	{"forged entries of the checkpoint", func(f *forger) []rawMessage {
		m := f.object()
		return []rawMessage{f.entry(m, max(0, m.Partition), m.Sequence)}
	}},
	{"garbage in the checkpoint", func(f *forger) []rawMessage {
		m := f.encode(f.object(), false)
		m.topic, m.where, m.headers = checkpointName, -1, nil
		m.body = [][]byte{[]byte("{"), []byte("null"), []byte("[]"), {}, f.bytes(100), []byte(`{"uid":7}`), nil}[f.IntN(7)]
		return []rawMessage{m}
	}},
	{"keys of control records", func(f *forger) []rawMessage {
		m := f.encode(f.object(), false)
		m.key = []byte(clusterName + []string{
			"/_control/topic/_/" + topicName, "/_control/topic/_/x", "/_control/writer/" + topicName + "/0", "/_control/writer/" + checkpointName + "/0", "/_control/cluster/_/claimed", "/_control/", "/",
		}[f.IntN(7)])
		m.topic, m.where = []string{checkpointName, topicName}[f.IntN(2)], f.IntN(2)-1
		m.body = fmt.Appendf(nil, `{"topic":%q,"partitions":%d,"records":%d}`, path.Base(string(m.key)), []int{-3, 1 << 20, 0, 1, 2}[f.IntN(5)], []int{-3, 1 << 20, 0, 1, 2}[f.IntN(5)])
		return []rawMessage{m}
	}},
	{"a tombstone", func(f *forger) []rawMessage {
		m := f.encode(f.object(), true)
		m.headers, m.body = nil, nil
		return []rawMessage{m}
	}},
	{"a tombstone in the checkpoint", func(f *forger) []rawMessage {
		return []rawMessage{f.erase(f.object())}
	}},
	{"a record in the partition of another object", func(f *forger) []rawMessage {
		if f.world.settings.kafka.partitions < 2 {
			return nil
		}
		m := f.object()
		raw := f.encode(m, false)
		raw.where = (max(0, m.Partition) + 1) % f.world.settings.kafka.partitions
		return []rawMessage{raw}
	}},
	{"a decompression bomb", func(f *forger) []rawMessage {
		m := f.encode(f.object(), false)
		m.headers, m.body, m.times = nil, make([]byte, bombRecord), bombOfEvents
		if f.IntN(3) > 0 {
			m.topic, m.where, m.times = checkpointName, 0, bombOfRecords
		}
		return []rawMessage{m}
	}},
	{"keys of nobody", func(f *forger) []rawMessage {
		m := f.encode(f.object(), false)
		m.key = [][]byte{nil, {}, f.bytes(30), []byte(clusterName + "/a/b/c/d/e/f"), []byte(clusterName + "/core/configmaps/%zz/x")}[f.IntN(5)]
		m.where = -1
		return []rawMessage{m}
	}},
}

// A bomb is a compressed batch of less than a megabyte with many records of bombRecord bytes. In the
// checkpoint topic, it unpacks to more than memoryBound. In the event topic, it unpacks to only a
// little more than the 128 MiB that a forwarder unpacks, because the recorder keeps the records.
const (
	bombRecord    = 1 << 20
	bombOfRecords = 300
	bombOfEvents  = 140
)

// erase returns a tombstone for the checkpoint entry of an object.
func (f *forger) erase(m harness.Received) rawMessage {
	raw := f.encode(m, false)
	raw.topic, raw.where, raw.headers, raw.body = checkpointName, -1, nil, nil
	return raw
}

// entry returns an entry of the checkpoint topic that claims a position for an object's last event.
func (f *forger) entry(m harness.Received, partition, offset any) rawMessage {
	raw := f.encode(m, false)
	raw.topic, raw.where, raw.headers = checkpointName, -1, nil
	text := func(v any) string {
		if s, ok := v.(string); ok {
			return fmt.Sprintf("%q", s)
		}
		return fmt.Sprint(v)
	}
	raw.body = fmt.Appendf(nil, `{"uid":%q,"resourceVersion":%q,"deleted":%v,"topic":%q,"partition":%s,"offset":%s}`,
		m.Attributes["uid"], m.Attributes["resourceversion"], f.IntN(2) == 0, f.topic(), text(partition), text(offset))
	return raw
}

// topic returns an event topic of the forwarder.
func (f *forger) topic() string {
	for _, m := range f.all {
		if resourceName(m) == configMaps {
			return m.Topic
		}
	}
	return topicName
}

// write implements [bus].
func (b *kafkaBus) write(ctx context.Context, m rawMessage) ([]harness.Place, error) {
	before, _, err := b.All()
	if err != nil {
		return nil, err
	}
	compression := kgo.NoCompression()
	if m.times > 0 {
		compression = kgo.ZstdCompression()
	}
	partitioner := kgo.ManualPartitioner()
	if m.where < 0 {
		partitioner = kgo.StickyKeyPartitioner(nil)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(b.addr, ",")...), kgo.RecordPartitioner(partitioner), kgo.ProducerBatchCompression(compression),
		kgo.ProducerBatchMaxBytes(1<<30-1), kgo.BrokerMaxWriteBytes(1<<30), kgo.UnknownTopicRetries(1), kgo.RecordDeliveryTimeout(limit), kgo.MaxBufferedBytes(1<<30), kgo.ProducerLinger(lingerOf(m)))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var headers []kgo.RecordHeader
	for _, h := range m.headers {
		headers = append(headers, kgo.RecordHeader{Key: h.name, Value: []byte(h.value)})
	}
	var batch []*kgo.Record
	for range max(1, m.times) {
		batch = append(batch, &kgo.Record{Topic: m.topic, Partition: int32(m.where), Key: m.key, Value: m.body, Headers: headers})
	}
	err = client.ProduceSync(ctx, batch...).FirstErr()
	for _, refusal := range []error{kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.CorruptMessage, kerr.PolicyViolation} {
		if errors.Is(err, refusal) {
			return nil, fmt.Errorf("%w: %w", errRefused, err)
		}
	}
	if err != nil || b.byName[m.topic] == nil {
		return nil, err
	}
	var places []harness.Place
	for _, r := range batch {
		at, err := recorded(ctx, b, len(before), harness.Place{Topic: m.topic, Partition: int(r.Partition), Sequence: uint64(r.Offset)})
		if err != nil {
			return nil, err
		}
		places = append(places, at)
	}
	return places, nil
}

// lingerOf returns how long the client waits for more records of a batch.
func lingerOf(m rawMessage) time.Duration {
	if m.times > 0 {
		return 200 * time.Millisecond
	}
	return 0
}

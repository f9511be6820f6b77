package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	kafkareader "github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	"github.com/kuberelay/kuberelay/internal/verify"
	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkacluster"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// checkpointName is the checkpoint topic, for every event topic.
const checkpointName = topicName + ".checkpoint"

// kafkaSettings are the settings that exist only on Kafka.
type kafkaSettings struct {
	partitions  int
	idempotent  bool
	cleanup     string // cleanup policy of the event topic
	tombstones  bool
	compacting  bool // the checkpoint topic is compacted as often as possible
	compression string
	alone       bool // min.insync.replicas is 1: a leader needs no follower
	returns     int  // maximum number of restarts of a forwarder after another one took over
}

func (g *generator) kafkaSettings() kafkaSettings {
	s := kafkaSettings{
		partitions: []int{1, 2, 3, 3, 7}[g.IntN(5)], idempotent: g.IntN(6) > 0, tombstones: g.IntN(2) == 0, compacting: g.IntN(2) == 0,
		compression: []string{"zstd", "zstd", "none", "lz4", "snappy", "gzip"}[g.IntN(6)], returns: g.IntN(3), cleanup: "compact",
	}
	if g.IntN(4) == 0 {
		s.keepAll()
	}
	return s
}

// keepAll turns compaction of the event topic off. Only then does Kafka allow deleting records.
func (s *kafkaSettings) keepAll() { s.cleanup = "delete" }

// kafkaAckTimeout is longer than ackTimeout, because a takeover sends several requests to a busy
// broker, and this timeout applies to each of them.
const kafkaAckTimeout = time.Second

// kafkaBus is a Kafka broker or a cluster of brokers. Each of two forwarders has its own listener,
// which advertises the forwarder's proxies. A third forwarder shares the listener of the first one.
type kafkaBus struct {
	*topicRecorders

	world   *world
	servers kafkaServers
	addr    string // the addresses of all brokers, for the suite itself
	proxies []faultproxy.Group

	server  *kafkabroker.Broker   // nil for a cluster
	cluster *kafkacluster.Cluster // nil for a single broker
	older   map[int]string        // by broker, the directory with an older copy of its disk, or "" if its disk itself is behind

	closed   bool   // the test has ended
	toReport int    // objects whose loss a forwarder must report
	reported []loss // losses that the forwarders had reported before
}

var _ bus = (*kafkaBus)(nil)

// kafkaServers are the processes of the bus.
type kafkaServers interface {
	Kill() error
	Start(ctx context.Context) error
	Freeze() error
	Thaw() error
	CreateTopic(ctx context.Context, name string, partitions int, config map[string]string) error
}

var _, _ kafkaServers = (*kafkabroker.Broker)(nil), (*kafkacluster.Cluster)(nil)

// kafkaListeners are the listeners of the forwarders.
var kafkaListeners = []kafkabroker.Listener{kafkabroker.Proxied, kafkabroker.ProxiedToo}

func startKafka(t testing.TB, w *world) *kafkaBus {
	b := &kafkaBus{world: w, older: map[int]string{}}
	var mu sync.Mutex // the brokers of a cluster start at once
	byTarget := map[string]*faultproxy.Proxy{}
	advertise := func(addr string) string {
		mu.Lock()
		defer mu.Unlock()
		if byTarget[addr] == nil {
			byTarget[addr] = faultproxy.Start(t, addr)
		}
		return byTarget[addr].Addr()
	}
	properties := map[string]string{
		// The recorder would miss records that are compacted before it reads them.
		"log.cleaner.min.compaction.lag.ms": fmt.Sprint(time.Hour.Milliseconds()),
		"log.cleaner.backoff.ms":            "100",
	}
	if w.settings.kafka.alone {
		properties["min.insync.replicas"] = "1"
	}
	addrsOf, err := b.run(t, advertise, properties)
	if err != nil {
		t.Fatal(err)
	}
	b.addr = strings.Join(addrsOf(kafkabroker.Plaintext), ",")
	for _, l := range kafkaListeners {
		var of faultproxy.Group
		for _, addr := range addrsOf(l) {
			of = append(of, byTarget[addr])
		}
		b.proxies = append(b.proxies, of)
	}
	if w.settings.kafka.compacting { // this also gives it a different number of partitions from the event topic
		err = b.servers.CreateTopic(t.Context(), checkpointName, max(1, w.settings.kafka.partitions/2), map[string]string{
			"cleanup.policy": "compact", "segment.ms": "200", "segment.bytes": fmt.Sprint(1 << 20), "min.cleanable.dirty.ratio": "0.01",
			"min.compaction.lag.ms": "0", "delete.retention.ms": "100",
		})
	}
	if err == nil {
		b.topicRecorders, err = recordTopics(b.addr, w.settings)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// run starts the processes of the bus. It returns a function that returns the addresses of a listener.
func (b *kafkaBus) run(t testing.TB, advertise func(string) string, properties map[string]string) (func(kafkabroker.Listener) []string, error) {
	var err error
	if size := b.world.settings.cluster; size > 0 {
		b.cluster, err = kafkacluster.Start(t, kafkacluster.Options{Size: size, Listeners: kafkaListeners, Advertise: advertise, Properties: properties, Former: b.world.settings.former})
		b.servers = b.cluster
		t.Cleanup(func() { b.closed = true }) // runs before the cluster is closed
		return b.cluster.AddrsOf, err
	}
	b.server, err = kafkabroker.Start(t.Context(), kafkabroker.Options{Listeners: kafkaListeners, Advertise: advertise, Properties: properties})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the Kafka broker's log ends with:\n%s", b.server.LogTail(logLines))
		}
		if err := b.server.Close(); err != nil {
			t.Error(err)
		}
	})
	b.servers = b.server
	return func(l kafkabroker.Listener) []string { return []string{b.server.AddrOf(l)} }, nil
}

func (b *kafkaBus) links(n int) faultproxy.Group { return b.proxies[n%len(b.proxies)] }

func (b *kafkaBus) variables(n int) map[string]string {
	s := b.world.settings
	var brokers []string
	for _, p := range b.links(n) {
		brokers = append(brokers, p.Addr())
	}
	return map[string]string{
		"KAFKA_BROKERS": strings.Join(brokers, ","), "KAFKA_ACK_TIMEOUT": kafkaAckTimeout.String(), "KAFKA_MAX_IN_FLIGHT": fmt.Sprint(s.inFlight),
		"KAFKA_PARTITIONS": fmt.Sprint(s.kafka.partitions), "KAFKA_IDEMPOTENT": fmt.Sprint(s.kafka.idempotent),
		"KAFKA_TOMBSTONES": fmt.Sprint(s.kafka.tombstones), "KAFKA_COMPRESSION": s.kafka.compression,
		"KAFKA_CLEANUP_POLICY": s.kafka.cleanup, "KAFKA_TOPIC": s.topic, "KAFKA_CHECKPOINT_TOPIC": checkpointName,
	}
}

func (b *kafkaBus) verified(o *verify.Options, cluster string) {
	o.Kafka = &kafkareader.Options{
		Broker: broker.Options{Addrs: strings.Split(b.addr, ",")}, Topic: b.world.settings.topic, CheckpointTopic: checkpointName, Cluster: cluster,
	}
	o.Repeats = !b.world.settings.kafka.idempotent
}

func (b *kafkaBus) kill() error                     { return b.servers.Kill() }
func (b *kafkaBus) start(ctx context.Context) error { return b.servers.Start(ctx) }
func (b *kafkaBus) freeze() error                   { return b.servers.Freeze() }
func (b *kafkaBus) thaw() error                     { return b.servers.Thaw() }

// execute implements [bus].
func (b *kafkaBus) execute(ctx context.Context, a act) error {
	if a.do == cutTail {
		return b.cutTails(ctx, strings.Split(a.arg, ","), a.n)
	}
	if b.cluster != nil {
		if do, ok := b.clusterActions()[a.do]; ok {
			return do(ctx, a)
		}
	}
	do, ok := map[verb]func(context.Context, string) error{deleteTopic: b.deleteTopic, addPartitions: b.grow}[a.do]
	if !ok {
		return fmt.Errorf("unknown action %q", a.do)
	}
	var all error
	for topic := range strings.SplitSeq(a.arg, ",") {
		all = errors.Join(all, do(ctx, topic))
	}
	return all
}

// deleteTopic deletes a topic. A forwarder that has just started may not have created it yet.
func (b *kafkaBus) deleteTopic(ctx context.Context, name string) error {
	request := kmsg.NewPtrDeleteTopicsRequest()
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = kmsg.StringPtr(name)
	request.TopicNames, request.Topics = []string{name}, append(request.Topics, topic)
	request.TimeoutMillis = int32(opTimeout.Milliseconds())
	return b.ask(ctx, name, "is deleted", func(ctx context.Context) error {
		response, err := b.main().Do(ctx, request)
		if err != nil {
			return err
		}
		for _, t := range response.(*kmsg.DeleteTopicsResponse).Topics {
			err = errors.Join(err, kerr.ErrorForCode(t.ErrorCode))
		}
		return err
	})
}

// grow adds two partitions to a topic.
func (b *kafkaBus) grow(ctx context.Context, name string) error {
	return b.ask(ctx, name, "has more partitions", func(ctx context.Context) error {
		partitions, err := b.main().Partitions(ctx, name)
		if err != nil {
			return err
		}
		request := kmsg.NewPtrCreatePartitionsRequest()
		topic := kmsg.NewCreatePartitionsRequestTopic()
		topic.Topic, topic.Count = name, int32(partitions+2)
		request.Topics = append(request.Topics, topic)
		request.TimeoutMillis = int32(opTimeout.Milliseconds())
		response, err := b.main().Do(ctx, request)
		if err != nil {
			return err
		}
		for _, t := range response.(*kmsg.CreatePartitionsResponse).Topics {
			err = errors.Join(err, kerr.ErrorForCode(t.ErrorCode))
		}
		return err
	})
}

// ask repeats a request about a topic until it succeeds. If the topic doesn't exist within feltLimit,
// ask gives up without an error.
func (b *kafkaBus) ask(ctx context.Context, name, what string, do func(context.Context) error) error {
	err := poll.Until(ctx, feltLimit, "the topic "+name+" "+what, do)
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, harness.ErrNoTopic) {
		return nil
	}
	return err
}

// purged implements [bus]. On Kafka, a tombstone shows that an object was purged.
func (*kafkaBus) purged(context.Context, harness.Received) (bool, error) { return false, nil }

// lose implements [bus]. Kafka loses the beginning of a partition, and with it every event of the
// objects whose last event is there.
func (b *kafkaBus) lose(ctx context.Context, objects int) (lost []harness.Place, err error) {
	all, _, err := b.All()
	if err != nil {
		return nil, err
	}
	last := map[string]harness.Place{} // in the current life of the topic
	life := 0
	for _, m := range all {
		if m.Life > life {
			life = m.Life
			clear(last)
		}
		if !isMarker(m) && !b.world.lost[m.Place] {
			last[m.Subject] = m.Place
		}
	}
	ends := map[int]uint64{} // by partition, the first offset that is left
	for _, subject := range slices.Sorted(maps.Keys(last)) {
		if p := last[subject]; objects > 0 {
			ends[p.Partition] = max(ends[p.Partition], p.Sequence+1)
			objects--
		}
	}
	for _, m := range all {
		p, ok := last[m.Subject]
		if isMarker(m) { // without its marker, a completed first snapshot begins again
			p, ok = m.Place, true
		}
		if ok && m.Life == life && p.Sequence < ends[p.Partition] {
			lost = append(lost, m.Place)
		}
	}
	return lost, b.deleteRecords(ctx, ends)
}

func (b *kafkaBus) deleteRecords(ctx context.Context, before map[int]uint64) error {
	request := kmsg.NewPtrDeleteRecordsRequest()
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic = topicName
	for p, offset := range before {
		of := kmsg.NewDeleteRecordsRequestTopicPartition()
		of.Partition, of.Offset = int32(p), int64(offset)
		topic.Partitions = append(topic.Partitions, of)
	}
	request.Topics = append(request.Topics, topic)
	request.TimeoutMillis = int32(opTimeout.Milliseconds())
	response, err := b.main().Do(ctx, request)
	if err != nil {
		return err
	}
	for _, t := range response.(*kmsg.DeleteRecordsResponse).Topics {
		for _, p := range t.Partitions {
			err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
		}
	}
	return err
}

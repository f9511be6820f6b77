package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/advice"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// These tests use kfake, because a real broker does not produce these faults on demand.

const faulty = "faulty" // name of the topic

func newFake(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, *Client) {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(1, faulty)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	c := newClient(t, cluster.ListenAddrs()[0])
	// kafka-go must not refresh the metadata by itself during a test.
	c.transport.pool.Load().MetadataTTL = time.Hour
	return cluster, c
}

func one(t testing.TB) []byte {
	return batch(t, recordbatch.None, NoProducer, recordbatch.NoSequence, record("a", "1"))
}

// move makes the other broker the leader of the partition.
func move(t *testing.T, cluster *kfake.Cluster) {
	t.Helper()
	if err := cluster.MoveTopicPartition(faulty, 0, 1-cluster.LeaderFor(faulty, 0)); err != nil {
		t.Fatal(err)
	}
}

func TestMetadataIsFreshAfterNotLeader(t *testing.T) {
	cluster, c := newFake(t)
	put(t, c, faulty, 0, record("a", "1"))

	move(t, cluster)
	_, err := c.Produce(within(t), faulty, 0, one(t))
	wantError(t, err, failure.Retry)
	if !errors.Is(err, kafka.NotLeaderForPartition) {
		t.Fatalf("got %v, want the former leader's refusal", err)
	}
	if _, err := c.Produce(within(t), faulty, 0, one(t)); err != nil {
		t.Errorf("the next attempt went to the former leader, too: %v", err)
	}

	move(t, cluster)
	if _, got := readAll(t, c, faulty, 0, 0, 2); !slices.Equal(got, []string{"0 a=1", "1 a=1"}) {
		t.Errorf("got %q", got)
	}
	move(t, cluster)
	if o, err := c.Offsets(within(t), faulty); err != nil || o.End[0] != 2 {
		t.Errorf("got %+v, %v", o, err)
	}
}

// TestTheReasonForMissingMetadata verifies that an error names the reason why no metadata can be fetched.
// A broker that shuts down responds that the partition has no leader, and kafka-go keeps that response
// until it can fetch metadata again.
func TestTheReasonForMissingMetadata(t *testing.T) {
	cluster, c := newFake(t)
	put(t, c, faulty, 0, record("a", "1"))
	cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		res := r.ResponseKind().(*kmsg.MetadataResponse)
		for id, address := range cluster.ListenAddrs() {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err, true
			}
			b := kmsg.NewMetadataResponseBroker()
			b.NodeID, b.Host = int32(id), host
			if _, err := fmt.Sscan(port, &b.Port); err != nil {
				return nil, err, true
			}
			res.Brokers = append(res.Brokers, b)
		}
		topic, partition := kmsg.NewMetadataResponseTopic(), kmsg.NewMetadataResponseTopicPartition()
		topic.Topic, partition.Leader, partition.ErrorCode = new(faulty), -1, kerr.LeaderNotAvailable.Code
		topic.Partitions = append(topic.Partitions, partition)
		res.Topics = append(res.Topics, topic)
		return res, nil, true
	})
	c.transport.renew(time.Now(), 0)
	cluster.Close()
	poll.Try(t, "the error names the reason", func(context.Context) error {
		if _, err := c.Produce(within(t), faulty, 0, one(t)); err == nil || !strings.Contains(err.Error(), "connect to "+c.opts.Addrs[0]) {
			return fmt.Errorf("it is: %w", err)
		}
		return nil
	})
}

// TestMetadataIsFreshAfterATimeoutOfTheLeader verifies that the client fetches new metadata when a leader
// responds with a timeout. A leader that is cut off from the other brokers cannot replicate, and does not
// know that another broker is now the leader.
func TestMetadataIsFreshAfterATimeoutOfTheLeader(t *testing.T) {
	cluster, c := newFake(t)
	put(t, c, faulty, 0, record("a", "1"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 1})
	move(t, cluster)
	_, err := c.Produce(within(t), faulty, 0, one(t))
	wantError(t, err, failure.Retry)
	if !errors.Is(err, kafka.RequestTimedOut) {
		t.Fatalf("got %v, want the former leader's timeout", err)
	}
	if _, err := c.Produce(within(t), faulty, 0, one(t)); err != nil {
		t.Errorf("the next attempt went to the former leader, too: %v", err)
	}
}

// TestMetadataIsNotFetchedAllTheTime verifies that the client fetches metadata at most once per renewEvery,
// even if many responses show that it is stale.
func TestMetadataIsNotFetchedAllTheTime(t *testing.T) {
	cluster, c := newFake(t)
	put(t, c, faulty, 0, record("a", "1"))
	before := c.transport.renews
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 50})
	started := time.Now()
	for range 50 {
		_, err := c.Produce(within(t), faulty, 0, one(t))
		wantError(t, err, failure.Retry)
	}
	most := 1 + int(time.Since(started)/renewEvery)
	if got := c.transport.renews - before; got < 1 || got > most {
		t.Errorf("renewed %d times, want 1 to %d", got, most)
	}
}

func TestProduceFaults(t *testing.T) {
	tests := []struct {
		err  *kerr.Error
		want failure.Kind
	}{
		{kerr.MessageTooLarge, failure.TooLarge},
		{kerr.RecordListTooLarge, failure.TooLarge},
		{kerr.NotEnoughReplicas, failure.Retry},
		{kerr.NotEnoughReplicasAfterAppend, failure.Retry},
		{kerr.RequestTimedOut, failure.Retry},
		{kerr.KafkaStorageError, failure.Retry},
		{kerr.ThrottlingQuotaExceeded, failure.Retry},
		{kerr.UnknownTopicOrPartition, failure.Retry},
		{kerr.UnknownServerError, failure.Retry},
		{kerr.DuplicateSequenceNumber, failure.Duplicate},
		{kerr.OutOfOrderSequenceNumber, failure.OutOfOrder},
		{kerr.UnknownProducerID, failure.OutOfOrder},
		{kerr.InvalidProducerIDMapping, failure.OutOfOrder},
		{kerr.InvalidProducerEpoch, failure.Fenced},
		{kerr.ProducerFenced, failure.Fenced},
		{kerr.InvalidRecord, failure.Never},
		{kerr.PolicyViolation, failure.Never},
		{kerr.ClusterAuthorizationFailed, failure.Denied},
	}
	cluster, c := newFake(t)
	for _, tt := range tests {
		t.Run(tt.err.Message, func(t *testing.T) {
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: tt.err})
			offset, err := c.Produce(within(t), faulty, 0, one(t))
			wantError(t, err, tt.want, faulty)
			if offset != -1 {
				t.Errorf("got offset %d", offset)
			}
			put(t, c, faulty, 0, record("b", "1"))
		})
	}
	// Brokers before 2.8 report a missing IdempotentWrite permission with this error.
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.ClusterAuthorizationFailed})
	_, err := c.Produce(within(t), faulty, 0, one(t))
	wantMisconfigured(t, err, failure.Denied, "add the ACL: IdempotentWrite on the cluster", "--operation IdempotentWrite --cluster)")
}

func TestConnectionThatIsCut(t *testing.T) {
	cluster, c := newFake(t)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, errors.New("cut"), true
	})
	_, err := c.Produce(within(t), faulty, 0, one(t))
	wantError(t, err, failure.Retry, "closed the connection", c.opts.brokers())
	put(t, c, faulty, 0, record("a", "1"))
}

func TestInitProducerIDPersists(t *testing.T) {
	cluster, c := newFake(t)
	for _, err := range []*kerr.Error{kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.ConcurrentTransactions} {
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: err})
	}
	faults := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, Err: kerr.CoordinatorNotAvailable})
	p, err := c.InitProducerID(within(t), "id", NoProducer)
	if err != nil || p.ID < 0 {
		t.Errorf("got %+v, %v", p, err)
	}
	if got := faults.Hits(); got != 1 {
		t.Errorf("the coordinator was asked for %d times in vain, want once", got)
	}

	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.TransactionalIDAuthorizationFailed})
	_, err = c.InitProducerID(within(t), "id", NoProducer)
	wantMisconfigured(t, err, failure.Denied, "add the ACL: Write on transactional-id id")
}

func TestEnsureFaults(t *testing.T) {
	cluster, c := newFake(t)
	want := advice.TopicConfig{Name: "new", Partitions: 1, Replication: 1, CleanupPolicy: "compact"}

	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.PolicyViolation})
	_, _, err := c.Ensure(within(t), want)
	wantMisconfigured(t, err, failure.Never, "create topic new", "Policy Violation")

	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.NotController})
	_, _, err = c.Ensure(within(t), want)
	wantError(t, err, failure.Retry, "create topic new")

	// Ensure retries the requests after the creation until they succeed.
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.UnknownTopicOrPartition})
	if got, created, err := c.Ensure(within(t), want); err != nil || !created || got.CleanupPolicy != "compact" {
		t.Errorf("got %+v, %v, %v", got, created, err)
	}
}

// answers replaces the responses to the next n fetches. It returns the number of replaced
// responses.
func answers(cluster *kfake.Cluster, n int32, answer func(*kmsg.FetchRequest, *kmsg.FetchResponse)) *atomic.Int32 {
	var made atomic.Int32
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if made.Load() >= n {
			return nil, nil, false
		}
		made.Add(1)
		fetch := req.(*kmsg.FetchRequest)
		res := fetch.ResponseKind().(*kmsg.FetchResponse)
		answer(fetch, res)
		return res, nil, true
	})
	return &made
}

// empty returns a function that fills in a fetch response without records, for a log whose high
// watermark is end.
func empty(end int64) func(*kmsg.FetchRequest, *kmsg.FetchResponse) {
	return func(req *kmsg.FetchRequest, res *kmsg.FetchResponse) {
		p := kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.LastStableOffset = end, end
		p.RecordBatches = []byte{}
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.Partitions = req.Topics[0].Topic, []kmsg.FetchResponseTopicPartition{p}
		res.Topics = []kmsg.FetchResponseTopic{topic}
	}
}

func TestReadFaults(t *testing.T) {
	tests := []struct {
		name   string
		times  int32
		answer func(*kmsg.FetchRequest, *kmsg.FetchResponse)
		want   []string
	}{
		// A broker that throttles a client responds without topics. kafka-go reports this as a
		// missing topic.
		{"throttled", 3, func(_ *kmsg.FetchRequest, res *kmsg.FetchResponse) { res.ThrottleMillis = 1 }, []string{"0 a=1", "1 b=1", "2 c=1"}},
		// A response without records does not prove that the log has no more records.
		{"empty", emptyResponses - 1, empty(3), []string{"0 a=1", "1 b=1", "2 c=1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cluster, c := newFake(t)
			for _, key := range []string{"a", "b", "c"} {
				put(t, c, faulty, 0, record(key, "1"))
			}
			made := answers(cluster, tt.times, tt.answer)
			if start, got := readAll(t, c, faulty, 0, 0, 3); start != 0 || !slices.Equal(got, tt.want) {
				t.Errorf("got %d, %q, want %q", start, got, tt.want)
			}
			if got := made.Load(); got != tt.times {
				t.Errorf("%d faults were made, want %d", got, tt.times)
			}
		})
	}
}

// TestEmptyAnswersSkipNothing verifies that a read never skips records because of empty responses.
// An earlier version concluded from three consecutive empty responses that compaction had emptied the log.
func TestEmptyAnswersSkipNothing(t *testing.T) {
	cluster, c := newFake(t)
	for _, key := range []string{"a", "b", "c"} {
		put(t, c, faulty, 0, record(key, "1"))
	}
	made := answers(cluster, emptyResponses, empty(3))
	_, err := c.Read(within(t), faulty, 0, 0, 3, func(r Record) error {
		t.Errorf("got the record at %d", r.Offset)
		return nil
	})
	wantError(t, err, failure.Never, "returned no records")
	if got := made.Load(); got != emptyResponses {
		t.Errorf("%d answers were empty, want %d", got, emptyResponses)
	}
	if start, got := readAll(t, c, faulty, 0, 0, 3); start != 0 || !slices.Equal(got, []string{"0 a=1", "1 b=1", "2 c=1"}) {
		t.Errorf("got %d, %q", start, got)
	}
}

func TestReadErrors(t *testing.T) {
	cluster, c := newFake(t)
	put(t, c, faulty, 0, record("a", "1"))
	read := func() error {
		_, err := c.Read(within(t), faulty, 0, 0, 1, func(Record) error { return nil })
		return err
	}
	for _, passing := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.UnknownTopicOrPartition, kerr.OffsetNotAvailable, kerr.OffsetOutOfRange, kerr.KafkaStorageError} {
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: passing})
		if passing != kerr.OffsetOutOfRange {
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: passing})
		}
		if err := read(); err != nil {
			t.Errorf("%s: %v", passing.Message, err)
		}
		if o, err := c.Offsets(within(t), faulty); err != nil || o.End[0] != 1 {
			t.Errorf("%s: got %+v, %v", passing.Message, o, err)
		}
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.UnsupportedCompressionType})
	wantError(t, read(), failure.Never, fmt.Sprintf("read topic %s, partition 0 from offset 0", faulty))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.TopicAuthorizationFailed})
	wantMisconfigured(t, read(), failure.Denied, "add the ACL: Read on topic "+faulty, "--allow-principal User:ANONYMOUS")
}

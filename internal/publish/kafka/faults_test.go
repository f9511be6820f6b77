package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// newFakeWriters returns writers on a kfake cluster, which can return responses that a real broker
// does not return on demand.
func newFakeWriters(t *testing.T) (*kfake.Cluster, *writers) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	o := testOptions(cluster.ListenAddrs()[0])
	o.Cluster, o.Partitions = "fake", 2
	return cluster, &writers{t, o}
}

// holdFetches suspends the fetches of at least a number of bytes from a topic until release is
// called. held receives a value when the first of them arrives.
func holdFetches(t *testing.T, cluster *kfake.Cluster, topic string, bytes int32) (held <-chan struct{}, release func()) {
	arrived, released := make(chan struct{}, 1), make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	cluster.ControlKey(int16(kmsg.Fetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for _, of := range request.(*kmsg.FetchRequest).Topics {
			if of.Topic == topic && of.Partitions[0].PartitionMaxBytes >= bytes {
				select {
				case arrived <- struct{}{}:
				default:
				}
				cluster.SleepControl(func() { <-released })
			}
		}
		return nil, nil, false
	})
	return arrived, release
}

// TestAnswersThatLeaveDoubt verifies that an event is stored exactly once, whatever response the
// broker returns. After a response that leaves unknown what is stored, the session ends or the
// batch is sent again.
func TestAnswersThatLeaveDoubt(t *testing.T) {
	for _, fault := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut, kerr.UnknownServerError,
		kerr.DuplicateSequenceNumber, kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerIDMapping,
		kerr.InvalidRecord, kerr.ClusterAuthorizationFailed, kerr.MessageTooLarge,
	} {
		t.Run(fault.Message, func(t *testing.T) {
			cluster, w := newFakeWriters(t)
			b := w.open()
			want := w.publishSome(b, "before-", 3)
			for n := range 6 {
				cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: fault})
				m := w.message(fmt.Sprint("during-", n), 1, 0)
				await(t, "published", func() (err error) {
					want[m.Key], err = w.publish(b, m)
					return err
				})
			}
			await(t, "loaded", func() error {
				return b.Load(t.Context(), func(event.Key, event.Acked) error { return nil })
			})
			w.wantLoaded(b, want)
			w.wantNoRepeat(9)
		})
	}
}

// TestALeaderThatIsBehindProvesNoLoss verifies that a retry does not store an event twice. The
// event is stored, but a leader that is behind reports that the log ends before it. An earlier
// version stored the event a second time.
func TestALeaderThatIsBehindProvesNoLoss(t *testing.T) {
	cluster, w := newFakeWriters(t)
	b := w.open()
	m := w.message("web", 1, 0)
	at := w.mustPublish(b, m)
	cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) { // replaces the response to the next fetch of events only
		request, response := r.(*kmsg.FetchRequest), r.ResponseKind().(*kmsg.FetchResponse)
		if request.Topics[0].Topic != w.opts.Topic { // the bus also looks for the markers of other writers
			cluster.KeepControl()
			return nil, nil, false
		}
		for _, t := range request.Topics {
			topic := kmsg.NewFetchResponseTopic()
			topic.Topic = t.Topic
			for _, p := range t.Partitions {
				partition := kmsg.NewFetchResponseTopicPartition()
				partition.Partition = p.Partition
				topic.Partitions = append(topic.Partitions, partition)
			}
			response.Topics = append(response.Topics, topic)
		}
		return response, nil, true
	})
	var conflict *publish.ConflictError
	if _, err := w.publish(b, m); !errors.Is(err, publish.ErrNotSent) || errors.As(err, &conflict) {
		t.Errorf("got %v, want one without a conclusion about what the bus has", err)
	}
	await(t, "published", func() error {
		got, err := w.publish(b, m)
		if err == nil && got != at {
			err = fmt.Errorf("stored at %d, and it was at %d already", got, at)
		}
		return err
	})
	w.wantNoRepeat(1)
}

// TestATopicIsCreatedOnceEnoughBrokersAreAlive verifies that the bus keeps retrying while the
// brokers reject a new topic because too few brokers are alive.
func TestATopicIsCreatedOnceEnoughBrokersAreAlive(t *testing.T) {
	cluster, w := newFakeWriters(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.InvalidReplicationFactor, Count: 3})
	b := w.open()
	w.wantLoaded(b, w.publishSome(b, "web-", 3))
}

// TestACreatedTopicCountsThoughTheAttemptFails verifies that a created topic counts even if the
// attempt to take over fails after the creation, and the next attempt finds the topic. In an
// earlier version, the topic did not count, so the caller did not learn that it was empty.
func TestACreatedTopicCountsThoughTheAttemptFails(t *testing.T) {
	cluster, w := newFakeWriters(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.PolicyViolation})
	if created := w.open().PossibleLosses(); created != 2 {
		t.Errorf("%d topics were created, want the event topic and the checkpoint topic", created)
	}
}

// TestNobodyKnowsUsAnyMore verifies that a writer stops after the brokers forgot its transactional
// ID. It cannot know whether another writer took over since then.
func TestNobodyKnowsUsAnyMore(t *testing.T) {
	cluster, w := newFakeWriters(t)
	b := w.open()
	s, _ := b.current()
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.InvalidProducerIDMapping, Count: 100})
	s.end(errRenew)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for ctx.Err() == nil && !errors.Is(b.Ready(), publish.ErrGone) {
		if err := b.Wait(ctx); err != nil && !errors.Is(err, publish.ErrGone) {
			t.Fatal(err)
		}
	}
}

// TestALoadIsCanceled verifies that a load that is canceled while it reads returns an error, and
// that the next load yields everything. There are more partitions than a load reads concurrently. In
// an earlier version, the load panicked on the partitions that it had not begun to read.
func TestALoadIsCanceled(t *testing.T) {
	cluster, w := newFakeWriters(t)
	w.opts.Partitions = 24
	b := w.open()
	want := w.publishSome(b, "web-", 3)
	held, release := holdFetches(t, cluster, DefaultCheckpointTopic(w.opts.Topic), 2) // a read of one record asks for 1 byte
	ctx, cancel := context.WithCancel(t.Context())
	loaded := make(chan error, 1)
	go func() { loaded <- b.Load(ctx, func(event.Key, event.Acked) error { return nil }) }()
	<-held
	cancel()
	if err := <-loaded; !errors.Is(err, context.Canceled) {
		t.Errorf("the load returns %v, want %v", err, context.Canceled)
	}
	release()
	w.wantLoaded(b, want)
}

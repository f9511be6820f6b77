package kafka

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// newFakeWriters is for responses that a real broker does not return on demand.
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

// TestAnswersThatLeaveDoubt: a response after which it is unknown what is stored ends the
// session, or the batch is sent again. Whatever the response, the event is stored once in
// the end.
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

// TestATopicIsCreatedOnceEnoughBrokersAreAlive: until then the brokers reject it, and the
// bus keeps retrying.
func TestATopicIsCreatedOnceEnoughBrokersAreAlive(t *testing.T) {
	cluster, w := newFakeWriters(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.InvalidReplicationFactor, Count: 3})
	b := w.open()
	w.wantLoaded(b, w.publishSome(b, "web-", 3))
}

// TestACreatedTopicCountsThoughTheAttemptFails: an attempt to take over fails after it has created
// a topic, and the next one finds the topic. It once did not count as created, so that the caller
// did not learn that the topic is empty.
func TestACreatedTopicCountsThoughTheAttemptFails(t *testing.T) {
	cluster, w := newFakeWriters(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.PolicyViolation})
	if created := w.open().Created(); created != 2 {
		t.Errorf("%d topics were created, want that of events and that of the checkpoint", created)
	}
}

// TestNobodyKnowsUsAnyMore: after the brokers forgot its transactional ID, a writer cannot
// know whether another one took over since, so it must stop.
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

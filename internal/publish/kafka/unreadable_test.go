package kafka

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/logtest"
)

// TestATopicThatCannotBeRead verifies that a session records no marker for a topic that it cannot read,
// even if it tries several times while another writer writes to the topic. In an earlier version, the
// second attempt recorded the marker of the first one, so the next takeover trusted that every event before
// the marker is recorded, and did not know the topic's events.
func TestATopicThatCannotBeRead(t *testing.T) {
	cluster, w := newFakeWriters(t)
	w.opts.Topic, w.opts.Partitions = "kuberelay.{group}.{resource}", 1
	const topic = "kuberelay.apps.deployments"
	b := w.open()
	m := w.message("web", 1, 0)
	var at uint64
	await(t, "published", func() (err error) {
		at, err = w.publish(b, m)
		return err
	})
	crash(b)
	w.opts.CheckpointTopic = "another" // as if the checkpoint topic were lost
	denied := refuseReads(cluster, topic, kerr.TopicAuthorizationFailed)
	b = w.open()
	s, _ := b.current()
	for range 2 {
		w.failToOpen(b, s, topic)
		newHostile(t, w.opts).write(topic, "a key of another user", "x")
	}
	w.failToOpen(b, s, topic)
	w.flushed(b)
	crash(b)
	denied.Store(false)
	w.wantLoaded(w.open(), map[event.Key]uint64{m.Key: at})
}

// TestATakeoverThatCannotRead verifies that the bus and the log give the reason while the reads of a takeover
// keep failing. In an earlier version, the bus reported only that it is not connected, and logged nothing.
func TestATakeoverThatCannotRead(t *testing.T) {
	cluster, w := newFakeWriters(t)
	b := w.open()
	want := w.publishSome(b, "web-", 3)
	crash(b)
	refused := refuseReads(cluster, DefaultCheckpointTopic(w.opts.Topic), kerr.KafkaStorageError)
	var log logtest.Log
	w.opts.Logger = log.Logger()
	b = openBus(t, w.opts)
	await(t, "the reason is known", func() error {
		if err := b.Ready(); !errors.Is(err, kafkago.KafkaStorageError) || !strings.Contains(log.String(), "not writing to Kafka, retrying") {
			return fmt.Errorf("got %w, and the log %s", err, log.String())
		}
		return nil
	})
	refused.Store(false)
	w.ready(b)
	w.wantLoaded(b, want)
}

// refuseReads answers the reads of a topic with an error while the returned value is true.
func refuseReads(cluster *kfake.Cluster, topic string, with *kerr.Error) (refused *atomic.Bool) {
	refused = &atomic.Bool{}
	refused.Store(true)
	cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		request, response := r.(*kmsg.FetchRequest), r.ResponseKind().(*kmsg.FetchResponse)
		if !refused.Load() || request.Topics[0].Topic != topic {
			return nil, nil, false
		}
		partition := kmsg.NewFetchResponseTopicPartition()
		partition.ErrorCode = with.Code
		of := kmsg.NewFetchResponseTopic()
		of.Topic, of.Partitions = topic, append(of.Partitions, partition)
		response.Topics = append(response.Topics, of)
		return response, nil, true
	})
	return refused
}

// failToOpen publishes to a topic, and waits until the attempt to open the topic has written a marker and
// has failed.
func (w *writers) failToOpen(b *Bus, s *session, topic string) {
	w.t.Helper()
	state := func() (end int64, opening bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t := s.topics[topic]; t != nil {
			end = t.senders[0].End()
		}
		return end, s.opening[topic]
	}
	before, _ := state()
	if _, err := w.publish(b, w.message("other", 1, 0)); !errors.Is(err, errOpening) {
		w.t.Fatalf("got %v, want %v", err, errOpening)
	}
	await(w.t, "the attempt has failed", func() error {
		if end, opening := state(); end == before || opening {
			return errors.New("not yet")
		}
		return nil
	})
}

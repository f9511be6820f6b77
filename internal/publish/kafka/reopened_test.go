package kafka

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/internal/event"
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
	denied := denyReads(cluster, topic)
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

// denyReads denies the reads of a topic while the returned value is true.
func denyReads(cluster *kfake.Cluster, topic string) (denied *atomic.Bool) {
	denied = &atomic.Bool{}
	denied.Store(true)
	cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		request, response := r.(*kmsg.FetchRequest), r.ResponseKind().(*kmsg.FetchResponse)
		if !denied.Load() || request.Topics[0].Topic != topic {
			return nil, nil, false
		}
		partition := kmsg.NewFetchResponseTopicPartition()
		partition.ErrorCode = kerr.TopicAuthorizationFailed.Code
		of := kmsg.NewFetchResponseTopic()
		of.Topic, of.Partitions = topic, append(of.Partitions, partition)
		response.Topics = append(response.Topics, of)
		return response, nil, true
	})
	return denied
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

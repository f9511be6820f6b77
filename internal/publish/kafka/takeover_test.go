package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// writers opens one bus after another, for a topic that only the test uses.
type writers struct {
	t    *testing.T
	opts Options
}

func newWriters(t *testing.T, partitions int) *writers {
	o := testOptions(kafkabrokertest.Shared(t).Addr())
	o.Topic = "topic-" + newID()
	o.Cluster = o.Topic // so that no other test takes over
	o.Partitions = partitions
	return &writers{t, o}
}

// open opens the next writer and waits until it is ready.
func (w *writers) open() *Bus {
	w.t.Helper()
	b := openBus(w.t, w.opts)
	w.ready(b)
	return b
}

func (w *writers) ready(b *Bus) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	if err := b.Wait(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// crash stops a bus as if its process were killed.
func crash(b *Bus) {
	b.stop()
	b.workers.Wait()
}

func (w *writers) message(name string, version int, expected uint64) *event.Message {
	w.t.Helper()
	return w.messageOf(event.Key{Group: "apps", Resource: "deployments", Namespace: "default", Name: name}, version, expected)
}

func (w *writers) messageOf(k event.Key, version int, expected uint64) *event.Message {
	w.t.Helper()
	r := event.Resource{Group: k.Group, Version: "v1", Resource: k.Resource, Kind: "Kind", Namespaced: true}
	uid := "uid-of-" + k.Name
	body := fmt.Sprintf(`{"apiVersion":%q,"kind":"Kind","metadata":{"name":%q,"namespace":%q,"resourceVersion":"%d","uid":%q}}`,
		r.APIVersion(), k.Name, k.Namespace, version, uid)
	m, err := event.Builder{Cluster: w.opts.Cluster}.Message(event.Change{
		Type: event.Updated, Key: k, Resource: r, Cause: event.CauseWatch, Observed: time.Now(),
		Object: &event.Object{APIVersion: r.APIVersion(), Kind: "Kind", Namespace: k.Namespace, Name: k.Name, UID: types.UID(uid), ResourceVersion: fmt.Sprint(version), Body: event.JSON([]byte(body))},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	m.Expected = expected
	return m
}

// publish publishes a message and waits for its completion.
func (w *writers) publish(b *Bus, m *event.Message) (uint64, error) {
	w.t.Helper()
	type result struct {
		position uint64
		err      error
	}
	done := make(chan result, 1)
	b.Publish(w.t.Context(), m, func(position uint64, err error) { done <- result{position, err} })
	select {
	case r := <-done:
		return r.position, r.err
	case <-time.After(limit):
		w.t.Fatalf("publish %s: no completion", m.ID)
		return 0, nil
	}
}

func (w *writers) mustPublish(b *Bus, m *event.Message) uint64 {
	w.t.Helper()
	position, err := w.publish(b, m)
	if err != nil {
		w.t.Fatal(err)
	}
	return position
}

// publishSome publishes the first event of each of n objects and returns their positions.
func (w *writers) publishSome(b *Bus, prefix string, n int) map[event.Key]uint64 {
	w.t.Helper()
	all := map[event.Key]uint64{}
	for i := range n {
		m := w.message(fmt.Sprint(prefix, i), 1, 0)
		all[m.Key] = w.mustPublish(b, m)
	}
	return all
}

// load returns the positions that a bus loads.
func (w *writers) load(b *Bus) map[event.Key]uint64 {
	w.t.Helper()
	all := map[event.Key]uint64{}
	if err := b.Load(w.t.Context(), func(k event.Key, a event.Acked) error {
		if a == (event.Acked{}) {
			delete(all, k)
		} else {
			all[k] = a.Position
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return all
}

func (w *writers) wantLoaded(b *Bus, want map[event.Key]uint64) {
	w.t.Helper()
	if got := w.load(b); !maps.Equal(got, want) {
		w.t.Errorf("loaded %v, want %v", got, want)
	}
}

// events returns the keys and IDs of the topic's events, without writers' markers, points and
// tombstones.
func (w *writers) events() (ids []string) {
	w.t.Helper()
	for _, r := range readTopic(w.t, w.opts.Broker.Addrs[0], w.opts.Topic) {
		m, err := binding.DecodeControl(recordOf(r).Headers, r.Value) // also decodes events of objects
		if errors.Is(err, binding.ErrTombstone) {
			continue
		}
		if err != nil {
			ids = append(ids, err.Error())
		} else if typ := event.Type(m.Attribute("type")); typ != event.WriterStarted && typ != event.Resolved {
			ids = append(ids, m.Attribute("partitionkey")+" "+m.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func (w *writers) wantNoRepeat(events int) {
	w.t.Helper()
	ids := w.events()
	if unique := len(slices.Compact(slices.Clone(ids))); unique != len(ids) || len(ids) != events {
		w.t.Errorf("the topic has %d events, %d of them different, want %d: %v", len(ids), unique, events, ids)
	}
}

func TestTheNextWriterKnowsWhatIsStored(t *testing.T) {
	for name, end := range map[string]func(*Bus){"closed": func(b *Bus) { b.Close() }, "killed": crash} {
		t.Run(name, func(t *testing.T) {
			w := newWriters(t, 3)
			first := w.open()
			want := w.publishSome(first, "web-", 20)
			w.wantLoaded(first, want)
			end(first)
			second := w.open()
			w.wantLoaded(second, want)
			w.wantLoaded(second, want) // the second load reads the topic
			for k, position := range want {
				if got := w.mustPublish(second, w.messageOf(k, 1, 0)); got != position {
					t.Errorf("%s published again is at %d, want %d", k, got, position)
				}
				want[k] = w.mustPublish(second, w.messageOf(k, 2, position))
			}
			end(second)
			w.wantLoaded(w.open(), want)
			w.wantNoRepeat(40)
		})
	}
}

// TestACrashBeforeTheRecord verifies that the next writer finds all acknowledged events if the
// process dies while only some of their entries are in the checkpoint topic.
func TestACrashBeforeTheRecord(t *testing.T) {
	const events = 10
	for recorded := range events + 1 {
		t.Run(fmt.Sprint(recorded, " recorded"), func(t *testing.T) {
			w := newWriters(t, 1)
			client, err := broker.New(w.opts.Broker)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			var mu sync.Mutex
			left, stopped := 1_000, make(chan struct{})
			w.opts.BatchBytes = 1 // one record in a batch
			w.opts.produce = func(ctx context.Context, topic string, partition int, batch []byte) (int64, error) {
				mu.Lock()
				defer mu.Unlock()
				if topic != w.opts.Topic {
					if left == 0 {
						select {
						case <-stopped:
						default:
							close(stopped)
						}
						return 0, io.ErrUnexpectedEOF
					}
					left--
				}
				return client.Produce(ctx, topic, partition, batch)
			}
			b := w.open()
			s, _ := b.current()
			if err := s.recorder.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			left = recorded
			mu.Unlock()
			want := map[event.Key]uint64{}
			results := make(chan error, events)
			var all sync.Mutex
			for n := range events {
				m := w.message(fmt.Sprint("web-", n), 1, 0)
				b.Publish(t.Context(), m, func(position uint64, err error) {
					all.Lock()
					want[m.Key] = position
					all.Unlock()
					results <- err
				})
			}
			for range events {
				if err := <-results; err != nil {
					t.Fatal(err)
				}
			}
			if recorded < events {
				<-stopped
			}
			crash(b)
			w.opts.produce = nil
			next := w.open()
			w.wantLoaded(next, want)
			for k, position := range want {
				if got := w.mustPublish(next, w.messageOf(k, 1, 0)); got != position {
					t.Errorf("%s published again is at %d, want %d", k, got, position)
				}
			}
			w.wantNoRepeat(events)
			crash(next)
			w.wantLoaded(w.open(), want) // now from the checkpoint topic
		})
	}
}

// TestTimestampsOfAnObjectNeverFall verifies timestamps after a writer whose clock was ahead. The
// records of the next writer have no earlier timestamps than those of the first one, whether or not
// the first writer's events are recorded. The answer to a foreign record has no earlier timestamp than
// that record.
func TestTimestampsOfAnObjectNeverFall(t *testing.T) {
	for _, recorded := range []bool{true, false} {
		t.Run(fmt.Sprint("recorded ", recorded), func(t *testing.T) {
			w := newWriters(t, 1)
			gate := newCheckpointGate(t, w)
			b := w.open()
			ahead := time.Now().Add(30 * time.Minute)
			w.flushed(b).topics[w.opts.Topic].senders[0].NotBefore(ahead)
			if !recorded {
				gate.close(map[int]int{0: 0})
			}
			web, gone := w.message("web", 1, 0), w.message("gone", 1, 0)
			at, deleted := w.mustPublish(b, web), w.mustPublish(b, gone)
			w.mustPublish(b, w.removal(event.Deleted, gone.Key, deleted))
			for version := range 3 {
				crash(b)
				gate.open()
				b = w.open()
				all, err := w.acked(b)
				if err != nil || all[web.Key].Time != web.Acked.Time {
					t.Errorf("loaded %+v, %v, want the time %d", all[web.Key], err, web.Acked.Time)
				}
				if got := time.UnixMilli(all[gone.Key].Time); got.Unix() != ahead.Unix() {
					t.Errorf("the delete was stored at %s, want %s", got, ahead)
				}
				web = w.messageOf(web.Key, 2+version, at)
				at = w.mustPublish(b, web)
			}
			r := &kgo.Record{Topic: w.opts.Topic, Key: []byte(event.PartitionKey(w.opts.Cluster, web.Key)), Value: []byte("no event"), Timestamp: time.Now().Add(50 * time.Minute)}
			if err := newHostile(t, w.opts).client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
			w.load(b)
			w.mustPublish(b, w.messageOf(web.Key, 9, position(0, r.Offset)))
			last := map[string]time.Time{}
			for _, r := range readTopic(t, w.opts.Broker.Addrs[0], w.opts.Topic) {
				if strings.Contains(string(r.Key), "_control") {
					continue
				}
				if r.Timestamp.Before(last[string(r.Key)]) {
					t.Errorf("%s: %s at offset %d is before %s", r.Key, r.Timestamp, r.Offset, last[string(r.Key)])
				}
				last[string(r.Key)] = r.Timestamp
			}
		})
	}
}

// TestTheStaleWriterIsTold verifies that a replaced writer learns who took over, and writes
// nothing.
func TestTheStaleWriterIsTold(t *testing.T) {
	w := newWriters(t, 3)
	stale := w.open()
	want := w.publishSome(stale, "web-", 5)
	w.opts.Writer = "team-a/forwarder-2"
	leader := w.open()
	for n := range 10 {
		if _, err := w.publish(stale, w.message(fmt.Sprint("late-", n), 1, 0)); err == nil {
			t.Error("the stale writer has published")
		}
	}
	err := stale.Wait(t.Context())
	for err == nil {
		err = stale.Wait(t.Context())
	}
	if !errors.Is(err, publish.ErrGone) || !strings.Contains(err.Error(), "team-a/forwarder-2") {
		t.Errorf("the stale writer reports %v, want %v with the name of the new writer", err, publish.ErrGone)
	}
	w.wantLoaded(leader, want)
	w.wantNoRepeat(5)
}

// TestASessionThatEndsDoesNotTakeBack verifies that a bus whose session ends does not take over
// again from a writer that took over since.
func TestASessionThatEndsDoesNotTakeBack(t *testing.T) {
	w := newWriters(t, 2)
	stale := w.open()
	s, _ := stale.current()
	leader := w.open()
	s.end(errRenew)
	await(t, "the stale writer is gone", func() error {
		if err := stale.Ready(); !errors.Is(err, publish.ErrGone) { // also true for nil
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	w.publishSome(leader, "web-", 5)
	w.wantNoRepeat(5)
}

// TestTheStaleWriterIsRefusedEverywhere verifies that the brokers reject a replaced writer even in
// partitions that received no event after the takeover.
func TestTheStaleWriterIsRefusedEverywhere(t *testing.T) {
	w := newWriters(t, 4)
	stale := w.open()
	s, _ := stale.current()
	w.open()
	for _, l := range append(slices.Clone(s.topics[w.opts.Topic].senders), s.recorder.Senders...) {
		m := w.message("web", 1, 0)
		record, err := stale.encode(m)
		if err != nil {
			t.Fatal(err)
		}
		refused := make(chan error, 1)
		l.Add(&sender.Item{Record: record, Done: func(_ int64, err error) { refused <- err }})
		if err := <-refused; failure.KindOf(err) != failure.Fenced {
			t.Errorf("partition %d of %s: got %v, want it refused", l.Partition, l.Topic, err)
		}
	}
}

// TestMorePartitions verifies that an object's events stay in their partition if the topic gets
// more partitions.
func TestMorePartitions(t *testing.T) {
	w := newWriters(t, 2)
	var log strings.Builder
	first := w.open()
	want := w.publishSome(first, "web-", 20)
	w.addPartitions(8)
	for k, position := range want { // while the first writer runs
		want[k] = w.mustPublish(first, w.messageOf(k, 2, position))
	}
	crash(first)
	w.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	second := w.open()
	w.wantLoaded(second, want)
	for k, position := range want {
		got := w.mustPublish(second, w.messageOf(k, 3, position))
		if publish.Partition(got) != publish.Partition(position) {
			t.Errorf("%s has moved from partition %d to %d", k, publish.Partition(position), publish.Partition(got))
		}
	}
	crash(second)
	if !strings.Contains(log.String(), "new partitions") {
		t.Errorf("the log does not name the new partitions: %s", &log)
	}
}

func (w *writers) kafka() *kafkago.Client {
	// Without a timeout, brokers get two seconds to create or delete a topic.
	client := kafkabrokertest.Client(w.t, w.opts.Broker.Addrs...)
	client.Timeout = limit
	return client
}

func (w *writers) addPartitions(count int32) {
	w.t.Helper()
	r, err := w.kafka().CreatePartitions(w.t.Context(), &kafkago.CreatePartitionsRequest{
		Topics: []kafkago.TopicPartitionsConfig{{Name: w.opts.Topic, Count: count}},
	})
	if err == nil {
		err = r.Errors[w.opts.Topic]
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// deleteTopic deletes a topic and waits until the broker no longer knows it. The broker responds
// earlier, and accepts records of the topic until then.
func (w *writers) deleteTopic(name string) {
	w.t.Helper()
	was := w.topicID(name)
	r, err := w.kafka().DeleteTopics(w.t.Context(), &kafkago.DeleteTopicsRequest{Topics: []string{name}})
	if err == nil {
		err = r.Errors[name]
	}
	if err != nil {
		w.t.Fatal(err)
	}
	await(w.t, "the topic is gone", func() error { // a writer may have created another topic with the name since
		if w.topicID(name) == was {
			return errors.New("the broker has it")
		}
		return nil
	})
}

// topicID returns the ID of a topic, or the zero value if the topic does not exist.
func (w *writers) topicID(name string) [16]byte {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.opts.Broker.Addrs...))
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	topic, request := kmsg.NewMetadataRequestTopic(), kmsg.NewPtrMetadataRequest()
	topic.Topic = &name
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(w.t.Context(), client)
	if err != nil {
		w.t.Fatal(err)
	}
	return response.Topics[0].TopicID
}

// await calls try until it succeeds.
func await(t *testing.T, what string, try func() error) {
	t.Helper()
	poll.Try(t, what, func(context.Context) error { return try() })
}

// awaitAnother waits until a bus has another session than the given one.
func awaitAnother(t *testing.T, b *Bus, than *session) {
	t.Helper()
	await(t, "the bus has another session", func() error {
		if now, err := b.current(); now == than || err != nil {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})
}

// TestATopicIsDeleted verifies that a running writer detects a deleted topic, recreates it, and
// reports that it is empty, so that everything is published again. If the checkpoint topic is
// deleted, the writer finds everything in the event topic.
func TestATopicIsDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		topic func(Options) string
		kept  bool
	}{
		"events":     {func(o Options) string { return o.Topic }, false},
		"checkpoint": {func(o Options) string { return DefaultCheckpointTopic(o.Topic) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriters(t, 2)
			b := w.open()
			want := w.publishSome(b, "web-", 10)
			created := b.PossibleLosses()
			w.deleteTopic(c.topic(w.opts))
			await(t, "the topic is recreated", func() error {
				if got := b.PossibleLosses(); got == created || b.Ready() != nil {
					return fmt.Errorf("%d possible losses, %w", got, b.Ready())
				}
				return nil
			})
			if !c.kept {
				want = map[event.Key]uint64{}
			}
			w.wantLoaded(b, want)
			want2 := w.publishSome(b, "more-", 5)
			maps.Copy(want2, want)
			w.wantLoaded(b, want2)
			crash(b)
			w.wantLoaded(w.open(), want2)
		})
	}
}

// TestATopicIsMadeAnewWhileNobodyLooks verifies that a takeover detects a recreated topic that has
// grown beyond the recorded offsets of the old one.
func TestATopicIsMadeAnewWhileNobodyLooks(t *testing.T) {
	w := newWriters(t, 1)
	b := w.open()
	w.publishSome(b, "web-", 5)
	crash(b)
	w.deleteTopic(w.opts.Topic)
	other := newWriters(t, 1)
	other.opts.Topic, other.opts.CheckpointTopic = w.opts.Topic, other.opts.Cluster+".checkpoint"
	await(t, "made anew", func() error {
		_, err := other.kafka().CreateTopics(t.Context(), &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{
			{Topic: w.opts.Topic, NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: []kafkago.ConfigEntry{{ConfigName: "cleanup.policy", ConfigValue: "compact"}}},
		}})
		return err
	})
	ob := other.open()
	theirs := other.publishSome(ob, "other-", 20)
	next := w.open()
	w.wantLoaded(next, map[event.Key]uint64{})
	want := w.publishSome(next, "web-", 5)
	w.wantLoaded(next, want)
	other.wantLoaded(ob, theirs) // another cluster in the same topic is not touched
	crash(ob)
	other.wantLoaded(other.open(), theirs)
	crash(next)
	w.wantLoaded(w.open(), want)
}

// TestAPartitionIsShorterThanAcknowledged verifies that a load detects a partition whose end the
// brokers lost. Everything before the end, including the session's marker, is unchanged.
func TestAPartitionIsShorterThanAcknowledged(t *testing.T) {
	w := newWriters(t, 2)
	b := w.open()
	want := w.publishSome(b, "web-", 5)
	s, _ := b.current()
	acknowledgeOneMore(t, s.topics[w.opts.Topic], 1)
	if err := b.Load(t.Context(), func(event.Key, event.Acked) error { return nil }); !errors.Is(err, sender.ErrDataLost) {
		t.Fatalf("got %v, want %v", err, sender.ErrDataLost)
	}
	if err := context.Cause(s.ctx); !errors.Is(err, sender.ErrDataLost) {
		t.Errorf("the session ended with %v, want %v", err, sender.ErrDataLost)
	}
	awaitAnother(t, b, s)
	w.wantLoaded(b, want)
}

// TestRecordsAreDeleted verifies that a bus does not load records that were deleted by hand.
func TestRecordsAreDeleted(t *testing.T) {
	w := newWriters(t, 1)
	w.opts.CleanupPolicy = "delete" // brokers do not delete records of compacted topics on request
	b := w.open()
	want := w.publishSome(b, "web-", 10)
	before := int64(6)
	w.deleteRecords(before)
	for k, position := range want {
		if publish.Offset(position) < before {
			delete(want, k)
		}
	}
	w.load(b) // what the takeover found
	w.wantLoaded(b, want)
	m := w.message("web-0", 1, 0)
	want[m.Key] = w.mustPublish(b, m)
	w.wantLoaded(b, want)
	crash(b)
	w.wantLoaded(w.open(), want)
}

func (w *writers) deleteRecords(before int64) {
	w.t.Helper()
	kadmDeleteRecords(w.t, w.opts.Broker.Addrs[0], w.opts.Topic, before)
}

func TestATopicForEachResource(t *testing.T) {
	w := newWriters(t, 2)
	prefix := w.opts.Topic
	w.opts.Topic = prefix + ".{group}.{resource}"
	b := w.open()
	want := map[event.Key]uint64{}
	for _, k := range []event.Key{
		{Resource: "pods", Namespace: "default", Name: "a"}, {Group: "apps", Resource: "deployments", Namespace: "default", Name: "a"},
		{Group: "networking.k8s.io", Resource: "ingresses", Namespace: "default", Name: "a"}, {Resource: "pods", Namespace: "default", Name: "b"},
	} {
		await(t, "published", func() error {
			position, err := w.publish(b, w.messageOf(k, 1, 0))
			want[k] = position
			return err
		})
	}
	w.wantLoaded(b, want)
	crash(b)
	next := w.open()
	w.wantLoaded(next, want)
	for k, position := range want {
		stored, err := next.At(t.Context(), k, position)
		if err != nil || stored.Object == nil || stored.Object.Name != k.Name {
			t.Errorf("%s at %d: %+v, %v", k, position, stored, err)
		}
	}
	for suffix, events := range map[string]int{".core.pods": 2, ".apps.deployments": 1, ".networking.k8s.io.ingresses": 1} {
		w.opts.Topic = prefix + suffix
		w.wantNoRepeat(events)
	}
}

// TestTheProducerIsRenewed verifies that the renewal of a session loses and repeats no event.
func TestTheProducerIsRenewed(t *testing.T) {
	w := newWriters(t, 2)
	b := w.open()
	s, _ := b.current()
	want := w.publishSome(b, "before-", 5)
	s.end(errRenew)
	awaitAnother(t, b, s)
	if now, _ := b.current(); now.producer == s.producer {
		t.Errorf("the producer is %+v as before", now.producer)
	}
	maps.Copy(want, w.publishSome(b, "after-", 5))
	w.wantLoaded(b, want)
	w.wantNoRepeat(10)
}

// TestAnOldSessionAsksFirst verifies that a process that was suspended for longer than brokers
// remember producers renews its session before it writes. So it learns that it was replaced.
func TestAnOldSessionAsksFirst(t *testing.T) {
	w := newWriters(t, 1)
	var attempts atomic.Int32
	w.opts.produce = func(context.Context, string, int, []byte) (int64, error) {
		attempts.Add(1)
		return 0, io.ErrUnexpectedEOF
	}
	b := openBus(t, w.opts)
	s := newSession(b, recordbatch.Producer{ID: 1})
	s.started = time.Now().Round(0).Add(-maxSessionAge - time.Hour)
	if _, err := s.produce(t.Context(), w.opts.Topic, 0, nil); !errors.Is(err, errRenew) || !errors.Is(context.Cause(s.ctx), errRenew) {
		t.Errorf("got %v, and the session ended with %v; want %v", err, context.Cause(s.ctx), errRenew)
	}
	s.started = time.Now().Round(0)
	before := attempts.Load()
	if _, err := s.produce(t.Context(), w.opts.Topic, 0, nil); errors.Is(err, errRenew) || attempts.Load() == before {
		t.Errorf("a young session: got %v after %d attempts", err, attempts.Load()-before)
	}
}

// TestAnIdleSessionIsRenewed verifies that a session without writes is renewed too. Otherwise, the
// brokers would forget its producer, and no longer reject older epochs.
func TestAnIdleSessionIsRenewed(t *testing.T) {
	b := newWriters(t, 1).open()
	now, _ := b.current()
	idle := newSession(b, recordbatch.Producer{ID: 1})
	idle.recorder, idle.checkpoint = now.recorder, now.checkpoint
	idle.started = time.Now().Round(0).Add(-maxSessionAge - time.Hour)
	watched := make(chan struct{})
	go func() { defer close(watched); b.watch(idle) }()
	select {
	case <-watched:
	case <-time.After(limit):
		idle.end(errStopped)
		<-watched
	}
	if err := context.Cause(idle.ctx); !errors.Is(err, errRenew) {
		t.Errorf("the session ended with %v, want %v", err, errRenew)
	}
}

// TestCloseWhileABrokerHangs verifies that Close ends the session at once, even while watch waits for
// the response to a probe. In an earlier version, the session ended only after the probe.
func TestCloseWhileABrokerHangs(t *testing.T) {
	cluster, w := newFakeWriters(t)
	b := w.open()
	s, err := b.current()
	if err != nil {
		t.Fatal(err)
	}
	held, release := make(chan struct{}, 1), make(chan struct{})
	defer close(release)
	cluster.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) { // only a probe requests these
		cluster.KeepControl()
		select {
		case held <- struct{}{}:
		default:
		}
		cluster.SleepControl(func() { <-release })
		return nil, nil, false
	})
	<-held
	b.stop()
	if err := context.Cause(s.ctx); !errors.Is(err, errStopped) {
		t.Errorf("the session ended with %v, want %v", err, errStopped)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestWithoutIdempotence(t *testing.T) {
	w := newWriters(t, 2)
	w.opts.Idempotent = false
	b := w.open()
	want := w.publishSome(b, "web-", 10)
	crash(b)
	next := w.open()
	w.wantLoaded(next, want)
	maps.Copy(want, w.publishSome(next, "more-", 10))
	w.wantLoaded(next, want)
	w.wantNoRepeat(20)
}

func TestMarkersAreRemembered(t *testing.T) {
	w := newWriters(t, 2)
	r := event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment"}
	b := w.open()
	for _, typ := range []event.Type{event.SnapshotStarted, event.SnapshotCompleted} {
		m, err := event.Builder{Cluster: w.opts.Cluster}.Marker(typ, r, "session", 0, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		w.mustPublish(b, m)
		for range 2 {
			if got, id, err := b.LastMarker(t.Context(), r.GroupResource()); got != typ || id != m.ID || err != nil {
				t.Errorf("got %s %s, %v; want %s %s", got, id, err, typ, m.ID)
			}
			crash(b)
			b = w.open()
		}
	}
	if got, _, err := b.LastMarker(t.Context(), event.Resource{Resource: "pods"}.GroupResource()); got != "" || err != nil {
		t.Errorf("got %s of another resource, %v", got, err)
	}
}

func TestAWrongTopicIsRefused(t *testing.T) {
	w := newWriters(t, 1)
	name := DefaultCheckpointTopic(w.opts.Topic)
	if _, err := w.kafka().CreateTopics(t.Context(), &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{
		{Topic: name, NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: []kafkago.ConfigEntry{{ConfigName: "cleanup.policy", ConfigValue: "delete"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	err := openBus(t, w.opts).Wait(t.Context())
	if !errors.Is(err, ErrMisconfigured) || !strings.Contains(err.Error(), "cleanup.policy") || !strings.Contains(err.Error(), name) {
		t.Errorf("got %v, want %v with the setting's name", err, ErrMisconfigured)
	}
}

// TestAMarkerIsSentOnce verifies that a second attempt at a marker is not sent, neither while the
// first one awaits its acknowledgement nor after the acknowledgement.
func TestAMarkerIsSentOnce(t *testing.T) {
	w := newWriters(t, 1)
	client, err := broker.New(w.opts.Broker)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var mute atomic.Bool
	sent := make(chan struct{}, 1)
	w.opts.produce = func(ctx context.Context, topic string, partition int, batch []byte) (int64, error) {
		base, err := client.Produce(ctx, topic, partition, batch)
		if mute.Load() {
			if topic == w.opts.Topic {
				select {
				case sent <- struct{}{}:
				default:
				}
			}
			return 0, io.ErrUnexpectedEOF
		}
		return base, err
	}
	b := w.open()
	m, err := event.Builder{Cluster: w.opts.Cluster}.Marker(event.SnapshotStarted, event.Resource{Version: "v1", Resource: "pods", Kind: "Pod"}, "session", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	mute.Store(true)
	unanswered := make(chan error, 1)
	b.Publish(t.Context(), m, func(_ uint64, err error) { unanswered <- err })
	<-sent
	b.sweep(time.Now().Add(time.Hour)) // as if the message had waited for an hour
	if err := <-unanswered; err == nil || errors.Is(err, publish.ErrNotSent) {
		t.Errorf("without an answer: got %v", err)
	}
	if _, err := w.publish(b, m); !errors.Is(err, publish.ErrNotSent) {
		t.Errorf("while the first attempt may be stored: got %v, want %v", err, publish.ErrNotSent)
	}
	mute.Store(false)
	await(t, "the marker is known", func() error {
		if _, id, err := b.LastMarker(t.Context(), event.Resource{Resource: "pods"}.GroupResource()); id != m.ID || err != nil {
			return fmt.Errorf("got %q, %w", id, err)
		}
		return nil
	})
	// This attempt stands for one whose caller looked for the marker before the acknowledgement
	// arrived.
	if _, err := w.publish(b, m); err != nil {
		t.Errorf("after the acknowledgement: got %v", err)
	}
	w.wantNoRepeat(1)
}

// TestAnIdleWriterIsToldToo verifies that a writer with nothing to write learns that it was
// replaced, although no broker rejects anything.
func TestAnIdleWriterIsToldToo(t *testing.T) {
	w := newWriters(t, 2)
	stale := w.open()
	w.open()
	await(t, "the idle writer is gone", func() error {
		if err := stale.Ready(); !errors.Is(err, publish.ErrGone) {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
}

// TestWhyThereIsNoBroker verifies that Ready returns the reason why no broker is reachable.
func TestWhyThereIsNoBroker(t *testing.T) {
	o := testOptions("127.0.0.1:1")
	o.AckTimeout = 500 * time.Millisecond
	b := openBus(t, o)
	await(t, "the reason", func() error {
		if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || !strings.Contains(err.Error(), "refused") {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
}

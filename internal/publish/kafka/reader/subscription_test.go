package reader

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
	"github.com/kuberelay/kuberelay/test/lab/readertest"
)

func TestFromStart(t *testing.T) {
	for _, structured := range []bool{false, true} {
		t.Run(fmt.Sprintf("structured=%t", structured), func(t *testing.T) {
			w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "start", 1, nil)
			w.Structured = structured
			put(t, w, "a", 1, 2)
			w.Put(marker(t, event.SnapshotStarted, "s"))
			w.Valued = true
			w.Put(marker(t, event.SnapshotCompleted, "s"))
			s := subscribe(t, open(t, Options{Topic: w.Topic, Cluster: cluster}, kafkabrokertest.Shared(t).Addr()), publish.FromStart)
			first := s.Next()
			if d := first.Delivery; first.String() != "uid-of-a.1" || d.Cluster != cluster || d.Position != publish.PositionOf(0, 0) || d.Place() != "0:0" || !d.Whole ||
				first.Message.Key != configMaps.Key("default", "a") || first.Message.Marker || !strings.Contains(string(first.Message.Data), `"n":"1"`) || first.Message.Attribute("type") != string(event.Created) {
				t.Errorf("got %+v of %+v", first.Delivery, first.Message)
			}
			s.want(ids("a", 2)...)
			for _, id := range []string{"configmaps.core.started.s", "configmaps.core.completed.s"} {
				m := s.Next().Message
				if m == nil || !m.Marker || m.ID != id || m.Key != (event.Key{Resource: "configmaps"}) || !strings.Contains(string(m.Data), `"resource":"configmaps"`) {
					t.Errorf("got %+v, want the marker %s", m, id)
				}
			}
			put(t, w, "b", 1)
			s.want(ids("b", 1)...)
		})
	}
}

func TestFromNow(t *testing.T) {
	w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "now", 2, nil)
	put(t, w, "a", 1, 2)
	s := subscribe(t, open(t, Options{Topic: w.Topic}, kafkabrokertest.Shared(t).Addr()), publish.FromNow)
	s.Reading()
	put(t, w, "a", 3)
	g := s.Next()
	if g.String() != "uid-of-a.3" || g.Whole {
		t.Errorf("got %s: %+v", g, g.Delivery)
	}
}

// TestFromLast verifies that FromLast yields the last event of each object, in any partition, and
// the last markers. An object whose last record is a tombstone yields nothing, unless the tombstone
// belongs to a delete.
func TestFromLast(t *testing.T) {
	w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "last", 3, nil)
	put(t, w, "a", 1, 2)
	put(t, w, "b", 1)
	w.Put(marker(t, event.SnapshotStarted, "s"))
	w.Put(marker(t, event.SnapshotCompleted, "s"))
	put(t, w, "gone", 1, 0)
	w.Tombstone(cluster, configMaps.Key("default", "gone"))
	put(t, w, "deleted", 1, 0)
	put(t, w, "dropped", 1)
	removal := state(t, cluster, "dropped", 0)
	at := w.Put(removal)
	w.PutRecord(publish.Partition(at), *binding.Tombstone(removal))
	put(t, w, "b", 2, 3)
	var reading longwork.Counter
	reading.Begin()
	s := subscribe(t, open(t, Options{Topic: w.Topic, Cluster: cluster, Reading: &reading}, kafkabrokertest.Shared(t).Addr()), publish.FromLast)
	var seen []string
	for range 6 {
		seen = append(seen, s.Next().String())
	}
	slices.Sort(seen)
	want := []string{"configmaps.core.completed.s", "tombstone gone", "uid-of-a.2", "uid-of-b.3", "uid-of-deleted.deleted", "uid-of-dropped.deleted"}
	if !slices.Equal(seen, want) {
		t.Errorf("got %q, want %q", seen, want)
	}
	put(t, w, "a", 3, 4)
	s.want(ids("a", 3, 4)...)
	if a, _ := reading.Measure(); a.Done == 0 || a.Done != a.Total || a.Done%2 != 0 {
		t.Errorf("counted %+v, want each record twice", a)
	}
}

// TestClusters verifies that a subscription yields the events of one cluster, or of all clusters.
func TestClusters(t *testing.T) {
	w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "clusters", 1, nil)
	w.Put(state(t, "prod", "a", 1))
	w.Put(state(t, "prod2", "a", 2))
	w.Put(state(t, "prod", "a", 3))
	one := subscribe(t, open(t, Options{Topic: w.Topic, Cluster: "prod"}, kafkabrokertest.Shared(t).Addr()), publish.FromStart)
	one.want("uid-of-a.1", "uid-of-a.3")
	all := subscribe(t, open(t, Options{Topic: w.Topic}, kafkabrokertest.Shared(t).Addr()), publish.FromStart)
	all.want("uid-of-a.1")
	if g := all.Next(); g.String() != "uid-of-a.2" || g.Cluster != "prod2" {
		t.Errorf("got %s: %+v", g, g.Delivery)
	}
}

func TestForeign(t *testing.T) {
	w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "foreign", 1, nil)
	key := []byte(event.PartitionKey(cluster, configMaps.Key("default", "a")))
	for _, r := range []recordbatch.Record{
		{Value: []byte("no key")},
		{Key: []byte("other"), Value: []byte("x")},
		{Key: key, Value: []byte("no event")},
		{Key: []byte(event.MarkerPartitionKey(cluster, configMaps.GroupResource()))},
	} {
		w.PutRecord(0, r)
	}
	writer, err := event.Builder{Cluster: cluster}.WriterStarted("me", "s", w.Topic, 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w.Put(writer)
	put(t, w, "a", 1)
	s := subscribe(t, open(t, Options{Topic: w.Topic}, kafkabrokertest.Shared(t).Addr()), publish.FromStart)
	s.want("foreign ", "foreign other", "foreign "+string(key), "foreign prod/_control/snapshot/core/configmaps")
	if m := s.Next().Message; m == nil || !m.Marker || m.Key != (event.Key{}) || m.Attribute("type") != string(event.WriterStarted) {
		t.Errorf("got %+v, want the writer's marker", m)
	}
	s.want(ids("a", 1)...)
}

// TestTopicsOfResources verifies that a subscription with a topic template finds a topic that is
// created later. A topic that matches the template but belongs to another resource yields no events.
func TestTopicsOfResources(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	base := kafkabrokertest.TopicName(t.Name())
	first := readertest.New(t, b.Addr(), base+".core.configmaps", 1)
	create := func(name string) {
		if err := b.CreateTopic(t.Context(), name, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	create(first.Topic)
	create(base + ".core.checkpoint")
	readertest.New(t, b.Addr(), base+".core.checkpoint", 1).Put(state(t, cluster, "c", 1))
	put(t, first, "a", 1)
	s := subscribe(t, open(t, Options{Topic: base + ".{group}.{resource}", CheckpointTopic: base + ".core.checkpoint"}, b.Addr()), publish.FromStart)
	s.want(ids("a", 1)...)

	create(base + ".apps.deployments")
	late := readertest.New(t, b.Addr(), base+".apps.deployments", 1)
	late.Put(state(t, cluster, "lost", 1)) // an event of another resource
	if g := s.Next(); g.Err == nil || !strings.Contains(g.Err.Error(), "belongs in topic "+strconv.Quote(first.Topic)) {
		t.Errorf("got %s (%v), want it refused", g, g.Err)
	} else if _, k, ok := g.Object(); ok {
		t.Errorf("a record in another topic is about the object %s", k)
	}
	first.PutRecord(0, recordbatch.Record{Key: []byte(cluster + "/core/%1B[2J/_/a"), Value: []byte("{}")})
	if g := s.Next(); g.Err == nil || strings.Contains(g.Err.Error(), "\x1b") {
		t.Errorf("got %s (%v), want it refused without an escape sequence", g, g.Err)
	}
	put(t, first, "a", 2)
	s.want(ids("a", 2)...)
}

func TestWaitsForTheTopic(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	name := kafkabrokertest.TopicName(t.Name())
	s := subscribe(t, open(t, Options{Topic: name}, b.Addr()), publish.FromNow)
	s.Notice("there is no topic", func(err error) bool { return errors.Is(err, publish.ErrMissing) })
	if err := b.CreateTopic(t.Context(), name, 2, nil); err != nil {
		t.Fatal(err)
	}
	w := readertest.New(t, b.Addr(), name, 2)
	put(t, w, "a", 1, 2) // possibly before the subscription finds the topic
	s.want(ids("a", 1, 2)...)
}

// TestBreak_Slow verifies that subscriptions continue after a broker was killed, or was down when they
// began.
func TestBreak_Slow(t *testing.T) {
	b := kafkabrokertest.Start(t, kafkabroker.Options{})
	w := readertest.NewTopic(t, b, "break", 1, nil)
	put(t, w, "a", 1)
	s := subscribe(t, open(t, Options{Topic: w.Topic}, b.Addr()), publish.FromStart)
	s.want(ids("a", 1)...)
	b.Kill()
	s.Notice("the broker is gone", func(err error) bool { return err != nil })
	late := subscribe(t, open(t, Options{Topic: w.Topic}, b.Addr()), publish.FromStart)
	late.Notice("the broker is not there", func(err error) bool { return err != nil })
	b.Start()
	put(t, w, "a", 2, 3)
	s.want(ids("a", 2, 3)...)
	late.want(ids("a", 1, 2, 3)...)
	late.Reading()
}

// TestMisconfigured verifies that an error that a retry cannot fix ends the subscription.
func TestMisconfigured(t *testing.T) {
	if _, err := Open(Options{Topic: "t"}); !errors.Is(err, ErrMisconfigured) {
		t.Errorf("without a broker: %v", err)
	}
	b := kafkabrokertest.Start(t, kafkabroker.Options{
		Listeners: []kafkabroker.Listener{kafkabroker.SASLPlaintext}, Users: map[string]string{"little": "pw"}, Authorize: true,
	})
	w := readertest.NewTopic(t, b, "denied", 1, nil)
	put(t, w, "a", 1)
	o := Options{Topic: w.Topic}
	o.Broker.SASLMechanism, o.Broker.User, o.Broker.PasswordFile = "SCRAM-SHA-256", "little", passwordFile(t, "pw")
	s := subscribe(t, open(t, o, b.AddrOf(kafkabroker.SASLPlaintext)), publish.FromStart)
	if err := s.Ended(); !errors.Is(err, ErrMisconfigured) || !strings.Contains(err.Error(), "add the ACL") {
		t.Errorf("got %v", err)
	}
}

// TestYieldFails verifies that an error of yield ends the subscription, and that yield is not called
// again.
func TestYieldFails(t *testing.T) {
	w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "fails", 3, nil)
	for n := range 20 {
		put(t, w, fmt.Sprint("a", n), 1)
	}
	b := open(t, Options{Topic: w.Topic}, kafkabrokertest.Shared(t).Addr())
	enough, n := errors.New("enough"), 0
	err := b.Subscribe(t.Context(), publish.SubscribeOptions{From: publish.FromStart}, func(*event.Message, publish.Delivery) error {
		n++
		if n == 5 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || n != 5 {
		t.Errorf("got %v after %d", err, n)
	}
}

// puts writes successive versions of an object to a partition, one for each time.
func puts(t testing.TB, w *readertest.Writer, partition int, name string, times ...time.Time) {
	t.Helper()
	for n, at := range times {
		r, err := binding.Encode(state(t, cluster, name, n+1), false)
		if err != nil {
			t.Fatal(err)
		}
		r.Timestamp = at
		w.PutRecord(partition, r)
	}
}

// TestFromTime verifies that FromTime starts at the first record of that time in each partition, or
// at the end if all records are older. Record times are whole milliseconds. To miss no later record,
// a subscription includes earlier records of the same millisecond.
func TestFromTime(t *testing.T) {
	w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "time", 3, nil)
	now := time.Now().Truncate(time.Millisecond)
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	puts(t, w, 0, "a", at(-9), at(-3), at(-2))
	puts(t, w, 1, "b", at(-9), at(-8))
	s := &subscriber{publishtest.Subscribe(t, open(t, Options{Topic: w.Topic}, kafkabrokertest.Shared(t).Addr()), publish.SubscribeOptions{From: publish.FromTime, Since: at(-3).Add(999 * time.Microsecond)}), t}
	s.want(ids("a", 2, 3)...)
	s.Reading()
	puts(t, w, 1, "b", at(0))
	s.want(ids("b", 1)...)
	puts(t, w, 2, "c", at(-100)) // stored after the start, whatever its time
	s.want(ids("c", 1)...)
}

// TestPast verifies that Past receives the events before the start, and receives them first. Records
// before the start that are not events are not reported. The counter counts both.
func TestPast(t *testing.T) {
	now := time.Now().Truncate(time.Millisecond)
	for _, tc := range []struct {
		name          string
		options       publish.SubscribeOptions
		past, yielded []string
		counted       int64
	}{
		{name: "from now", options: publish.SubscribeOptions{From: publish.FromNow}, past: ids("a", 1, 2, 3), counted: 4},
		{name: "from a time", options: publish.SubscribeOptions{From: publish.FromTime, Since: now}, past: ids("a", 1, 2), yielded: ids("a", 3), counted: 3},
		{name: "from the start", options: publish.SubscribeOptions{From: publish.FromStart}, yielded: append([]string{"foreign x"}, ids("a", 1, 2, 3)...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "past", 1, nil)
			w.PutRecord(0, recordbatch.Record{Key: []byte("x"), Timestamp: now.Add(-time.Hour)})
			puts(t, w, 0, "a", now.Add(-2*time.Minute), now.Add(-time.Minute), now)
			var past []string // read only after an event was yielded, when Past is complete
			tc.options.Past = func(m *event.Message, _ publish.Delivery) { past = append(past, m.ID) }
			var reading longwork.Counter
			reading.Begin() // so that the counter can be measured after the read ended
			s := &subscriber{publishtest.Subscribe(t, open(t, Options{Topic: w.Topic, Reading: &reading}, kafkabrokertest.Shared(t).Addr()), tc.options), t}
			s.Reading()
			s.want(tc.yielded...)
			put(t, w, "live", 1)
			s.want(ids("live", 1)...)
			if !slices.Equal(past, tc.past) {
				t.Errorf("got %q as past, want %q", past, tc.past)
			}
			if a, is := reading.Measure(); !is || a.Done != tc.counted || a.Total != tc.counted {
				t.Errorf("counted %+v, %v, want %d", a, is, tc.counted)
			}
			reading.End()
			if a, is := reading.Measure(); is {
				t.Errorf("it is not over: %+v", a)
			}
		})
	}
}

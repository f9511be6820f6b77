package nats

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

func TestStreamIsCreated(t *testing.T) {
	s := natstest.Start(t)
	connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: "c", Stream: "S", SubjectPrefix: "p"}, History: 3})
	stream, err := observe(t, s.URL).Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	got := stream.CachedInfo().Config
	if got.Storage != jetstream.FileStorage || got.Retention != jetstream.LimitsPolicy || got.Discard != jetstream.DiscardNew ||
		got.DiscardNewPerSubject || got.AllowDirect || got.MaxAge != 0 || got.MaxMsgsPerSubject != 3 || got.MaxMsgs != -1 ||
		got.MaxBytes != -1 || got.Replicas != 1 || len(got.Subjects) != 1 || got.Subjects[0] != "p.>" {
		t.Errorf("the stream is %+v", got)
	}
	if created := stream.CachedInfo().Created.UnixMicro(); got.FirstSeq == 0 || got.FirstSeq > uint64(created) || got.FirstSeq > 1<<53 {
		t.Errorf("the first sequence is %d, want the microseconds until %d", got.FirstSeq, created)
	}
}

// TestAStreamThatComesBackEmpty verifies that a new stream starts above the old one after a server
// lost its files. An earlier version started it at 1. Then a subscriber with a standard client
// waited, without an error, until the new stream had passed its old position, and missed everything
// before that.
func TestAStreamThatComesBackEmpty(t *testing.T) {
	s := natstest.StartProcess(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	identity, created := bus.Stream(), bus.PossibleLosses()
	js := observe(t, s.URL)
	consumer, err := js.OrderedConsumer(t.Context(), "KUBERELAY", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Stop()
	want := func(name string, version int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			t.Fatalf("waiting for version %d of %s: %v", version, name, err)
		}
		id := publishtest.Object{Name: name, Version: version}.Message(t, 0).ID
		if got := m.Headers().Get("ce-id"); got != id {
			t.Fatalf("got %s, want %s", got, id)
		}
	}
	const versions = 50
	position := uint64(0)
	for version := range versions {
		position = publishOK(t, bus, publishtest.Object{Name: "old", Version: version + 1}.Message(t, position))
		want("old", version+1)
	}
	s.Kill()
	s.Forget()
	s.Start()
	poll.Holds(t, "a new stream", func() bool { return bus.PossibleLosses() > created && bus.Ready() == nil })
	if got := bus.Stream(); got == identity || got == "" {
		t.Errorf("the new stream is %q, as the old one", got)
	}
	for _, name := range []string{"new", "newer"} {
		if got := publishOK(t, bus, publishtest.Object{Name: name, Version: 1}.Message(t, 0)); got <= position {
			t.Errorf("%s is at %d, and the old stream had reached %d", name, got, position)
		}
		want(name, 1)
	}
}

// TestAStreamIsReplacedWhileNothingHappens verifies that the bus detects the removal of its stream
// even if it publishes nothing.
func TestAStreamIsReplacedWhileNothingHappens(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	created := bus.PossibleLosses()
	if err := observe(t, s.URL).DeleteStream(t.Context(), "KUBERELAY"); err != nil {
		t.Fatal(err)
	}
	poll.Holds(t, "a new stream", func() bool { return bus.PossibleLosses() > created && bus.Ready() == nil })
	if bus.conn.NC.Stats().Reconnects > 0 {
		t.Error("the connection was lost")
	}
}

// TestStreamIsShared verifies that forwarders of several clusters can start concurrently on one
// stream.
func TestStreamIsShared(t *testing.T) {
	s := natstest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	const forwarders = 8
	errs := make([]error, forwarders)
	var wg sync.WaitGroup
	for i := range forwarders {
		wg.Go(func() {
			bus, err := Connect(t.Context(), Options{Connection: Connection{URLs: []string{s.URL}, Cluster: string(rune('a' + i))}})
			if err == nil {
				defer bus.Close()
				err = bus.Wait(ctx)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// TestStreamIsDisputed verifies that, if several forwarders start concurrently with two
// configurations of the stream, one configuration wins, and the forwarders with the other one get an
// error.
func TestStreamIsDisputed(t *testing.T) {
	s := natstest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	const forwarders = 8
	var ready [2]atomic.Int32
	var wg sync.WaitGroup
	for i := range forwarders {
		wg.Go(func() {
			bus, err := Connect(t.Context(), Options{Connection: Connection{URLs: []string{s.URL}, Cluster: "c"}, History: 8 + i%2})
			if err == nil {
				defer bus.Close()
				err = bus.Wait(ctx)
			}
			switch {
			case err == nil:
				ready[i%2].Add(1)
			case !errors.Is(err, ErrMisconfigured):
				t.Errorf("error is %v, want ErrMisconfigured", err)
			}
		})
	}
	wg.Wait()
	if a, b := ready[0].Load(), ready[1].Load(); a+b != forwarders/2 || a != 0 && b != 0 {
		t.Errorf("%d and %d forwarders are ready, want %d of one kind", a, b, forwarders/2)
	}
}

func TestStreamIsChecked(t *testing.T) {
	right := Options{}.WithDefaults().streamConfig()
	for _, test := range []struct {
		name   string
		change func(*jetstream.StreamConfig)
		says   []string // nil means that the stream is valid
	}{
		{"as it should be", func(*jetstream.StreamConfig) {}, nil},
		{"limits on size", func(c *jetstream.StreamConfig) { c.MaxBytes, c.MaxMsgs, c.MaxMsgSize = 1<<20, 1000, 1<<20 }, nil},
		{"more subjects", func(c *jetstream.StreamConfig) { c.Subjects = []string{"kuberelay.>", "other.>"} }, nil},
		{"compressed", func(c *jetstream.StreamConfig) { c.Compression = jetstream.S2Compression }, nil},
		{
			"several", func(c *jetstream.StreamConfig) {
				c.MaxMsgsPerSubject, c.MaxAge, c.Discard, c.AllowDirect = 1, time.Hour, jetstream.DiscardOld, true
			},
			[]string{
				"max_msgs_per_subject is 1, should be 8", "max_age is 1h0m0s, should be 0s", "discard is DiscardOld, should be DiscardNew", "allow_direct is true, should be false",
				"nats stream edit KUBERELAY --max-msgs-per-subject=8 --max-age=0s --discard=new --no-allow-direct",
			},
		},
		{
			"not our subjects", func(c *jetstream.StreamConfig) { c.Subjects = []string{"kuberelay.*"} },
			[]string{"subjects is kuberelay.*, should be kuberelay.>", "--subjects='kuberelay.*,kuberelay.>'"},
		},
		{
			"discard per subject", func(c *jetstream.StreamConfig) { c.DiscardNewPerSubject = true },
			[]string{"discard_new_per_subject is true, should be false", "--no-discard-per-subject"},
		},
		{
			"without acknowledgements", func(c *jetstream.StreamConfig) { c.NoAck = true },
			[]string{"no_ack is true, should be false", "--ack"},
		},
		{
			"in memory", func(c *jetstream.StreamConfig) { c.Storage, c.MaxAge = jetstream.MemoryStorage, time.Hour },
			[]string{"storage is Memory, should be File", "max_age", "cannot be changed", "KUBERELAY_NATS_STREAM", "nats stream rm KUBERELAY"},
		},
		{
			"persisted asynchronously", func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode },
			[]string{"persist_mode is Async, should be Default", "cannot be changed"},
		},
		{
			"a work queue", func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy },
			[]string{"retention is WorkQueue, should be Limits", "cannot be changed"},
		},
		{
			"never to be purged", func(c *jetstream.StreamConfig) { c.DenyPurge = true },
			[]string{"deny_purge is true, should be false", "cannot be changed"},
		},
		{
			"subjects transformed", func(c *jetstream.StreamConfig) {
				c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "kuberelay.>", Destination: "else.>"}
			},
			[]string{"subject_transform", "--no-transform"},
		},
		{
			"another stream has the subjects", func(c *jetstream.StreamConfig) { c.Name = "OTHER" },
			[]string{`another stream already has subjects of "kuberelay.>"`, "KUBERELAY_NATS_SUBJECT_PREFIX"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := natstest.Start(t)
			config := right
			test.change(&config)
			if _, err := observe(t, s.URL).CreateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			bus, err := Connect(t.Context(), Options{Connection: Connection{URLs: []string{s.URL}, Cluster: "c"}})
			if err == nil {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				err = bus.Wait(ctx)
				bus.Close()
			}
			if test.says == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, ErrMisconfigured) {
				t.Fatalf("error is %v, want ErrMisconfigured", err)
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not say %q: %v", want, err)
				}
			}
		})
	}
}

func TestCovers(t *testing.T) {
	for _, test := range []struct {
		subject string
		want    bool
	}{
		{"p.>", true},
		{">", true},
		{"*.>", true},
		{"p.*", false},
		{"p", false},
		{"p.a.>", false},
		{"q.>", false},
		{"*", false},
		{"p.*.>", false}, // p.a matches p.> but not p.*.>
	} {
		if got := covers([]string{"x", test.subject}, "p.>"); got != test.want {
			t.Errorf("%s covers p.>: got %v, want %v", test.subject, got, test.want)
		}
	}
}

// TestStreamIsLost verifies that the bus recreates the stream and returns a conflict if the server
// restarts without its files. The forwarder does not have to restart.
func TestStreamIsLost(t *testing.T) {
	s := natstest.Start(t)
	store := s.StoreDir()
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	position := publishOK(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
	s.Stop()
	if err := os.RemoveAll(filepath.Join(store, "jetstream")); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	waitReconnected(t, bus)
	_, err := publishNow(t, bus, publishtest.Object{Name: "web", Version: 2}.Message(t, position))
	var conflict *publish.ConflictError
	if !errors.As(err, &conflict) || conflict.Bus != (event.Acked{}) {
		t.Errorf("error is %v, want a conflict with nothing", err)
	}
	publishOK(t, bus, publishtest.Object{Name: "web", Version: 2}.Message(t, 0))
}

// TestStreamIsDeleted is like TestStreamIsLost, but the stream is deleted while the connection stays
// open.
func TestStreamIsDeleted(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	if err := observe(t, s.URL).DeleteStream(t.Context(), "KUBERELAY"); err != nil {
		t.Fatal(err)
	}
	m := publishtest.Object{Name: "web", Version: 1}.Message(t, 0)
	if _, err := publishNow(t, bus, m); err == nil {
		// The check after the connect may find that the stream no longer exists.
		poll.Holds(t, "the new stream is counted after the deleted one", func() bool { return bus.PossibleLosses() > 1 })
	}
	poll.Holds(t, "published again", func() bool {
		_, err := publishNow(t, bus, m)
		return err == nil
	})
}

// TestStreamIsSpoiled verifies that the bus rejects a stream that was edited to wrong settings, and
// continues once the settings are corrected.
func TestStreamIsSpoiled(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	js := observe(t, s.URL)
	config := bus.opts.streamConfig()
	config.Discard = jetstream.DiscardOld
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	poll.Holds(t, "refused", func() bool { // on the next connection, because the first may also report the error
		lost, _, err := bus.conn.State()
		return lost > 0 && errors.Is(err, ErrMisconfigured)
	})
	if _, err := publishNow(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0)); !errors.Is(err, ErrMisconfigured) {
		t.Errorf("publish gives %v, want ErrMisconfigured", err)
	}
	poll.Holds(t, "mended", func() bool { // the test's client also has to reconnect
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.UpdateStream(ctx, bus.opts.streamConfig())
		return err == nil
	})
	poll.Holds(t, "ready", func() bool { return bus.Ready() == nil })
}

// TestAStreamKeepsItsIdentity verifies that the creation time of the stream does not change when the
// server restarts or another leader is elected. Otherwise the claim would name another stream.
func TestAStreamKeepsItsIdentity(t *testing.T) {
	t.Run("restart", func(t *testing.T) {
		s := natstest.Start(t)
		bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
		before := bus.Stream()
		s.Restart()
		waitReconnected(t, bus)
		lost, _, _ := bus.conn.State() // a busy machine can lose more than one connection
		if got := bus.Stream(); got != before || bus.PossibleLosses() != uint64(lost)+1 {
			t.Errorf("the stream was %q and is %q, and there are %d possible losses after %d lost connections", before, got, bus.PossibleLosses(), lost)
		}
	})
	t.Run("another leader", func(t *testing.T) {
		c := natstest.StartCluster(t, 3)
		var log strings.Builder
		bus := connect(t, Options{Connection: Connection{URLs: c.URLs, Cluster: publishtest.Cluster, Logger: slog.New(slog.NewTextHandler(&locked{w: &log}, nil))}, Replicas: 3})
		before := bus.Stream()
		first := func() string {
			stream, err := bus.conn.JS.Stream(t.Context(), "KUBERELAY")
			if err != nil || stream.CachedInfo().Cluster == nil {
				return ""
			}
			return stream.CachedInfo().Cluster.Leader
		}
		leader := first()
		c.StopNamed(leader)
		poll.Holds(t, "another leader", func() bool { l := first(); return l != "" && l != leader && bus.Ready() == nil })
		if err := bus.conn.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := bus.Stream()
		bus.Close()
		if got != before || strings.Contains(log.String(), "recreated") {
			t.Errorf("the stream was %q and is %q; the log has:\n%s", before, got, log.String())
		}
	})
}

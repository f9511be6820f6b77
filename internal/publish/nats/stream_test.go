package nats

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/natsserver/natstest"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/publishtest"
)

func TestStreamIsCreated(t *testing.T) {
	s := natstest.Start(t)
	connect(t, Options{URLs: []string{s.URL}, Cluster: "c", Stream: "S", SubjectPrefix: "p", History: 3})
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
}

// TestStreamIsShared: several forwarders of several clusters start at once.
func TestStreamIsShared(t *testing.T) {
	s := natstest.Start(t)
	const forwarders = 8
	errs := make([]error, forwarders)
	var wg sync.WaitGroup
	for i := range forwarders {
		wg.Go(func() {
			bus, err := Connect(t.Context(), Options{URLs: []string{s.URL}, Cluster: string(rune('a' + i))})
			if err == nil {
				err = bus.Ready()
				defer bus.Close()
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// TestStreamIsDisputed: the same, with two ideas of the stream. One gets its way, and
// the others are told.
func TestStreamIsDisputed(t *testing.T) {
	s := natstest.Start(t)
	const forwarders = 8
	var ready [2]atomic.Int32
	var wg sync.WaitGroup
	for i := range forwarders {
		wg.Go(func() {
			bus, err := Connect(t.Context(), Options{URLs: []string{s.URL}, Cluster: "c", History: 8 + i%2})
			switch {
			case err == nil && bus.Ready() == nil:
				ready[i%2].Add(1)
			case err == nil:
				t.Errorf("not ready: %v", bus.Ready())
			case !errors.Is(err, ErrMisconfigured):
				t.Errorf("error is %v, want ErrMisconfigured", err)
			}
			if err == nil {
				bus.Close()
			}
		})
	}
	wg.Wait()
	if a, b := ready[0].Load(), ready[1].Load(); a+b != forwarders/2 || a != 0 && b != 0 {
		t.Errorf("%d and %d forwarders are ready, want %d of one kind", a, b, forwarders/2)
	}
}

func TestStreamIsChecked(t *testing.T) {
	right := Options{}.withDefaults().streamConfig()
	for _, test := range []struct {
		name   string
		change func(*jetstream.StreamConfig)
		says   []string // nothing: it is fine
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
			[]string{`another stream already takes some of "kuberelay.>"`, "KUBERELAY_NATS_SUBJECT_PREFIX"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := natstest.Start(t)
			config := right
			test.change(&config)
			if _, err := observe(t, s.URL).CreateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			bus, err := Connect(t.Context(), Options{URLs: []string{s.URL}, Cluster: "c"})
			if err == nil {
				err = bus.Ready()
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
		{"p.*.>", false}, // p.a is in p.> and not in it
	} {
		if got := covers([]string{"x", test.subject}, "p.>"); got != test.want {
			t.Errorf("%s covers p.>: got %v, want %v", test.subject, got, test.want)
		}
	}
}

// TestStreamIsLost: the server comes back without its files. The stream is there
// again without a restart of ours, and says that it holds nothing.
func TestStreamIsLost(t *testing.T) {
	s := natstest.Start(t)
	store := s.StoreDir()
	bus := connect(t, Options{URLs: []string{s.URL}, Cluster: publishtest.Cluster})
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

// TestStreamIsDeleted: the same while the connection stays.
func TestStreamIsDeleted(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{URLs: []string{s.URL}, Cluster: publishtest.Cluster})
	if err := observe(t, s.URL).DeleteStream(t.Context(), "KUBERELAY"); err != nil {
		t.Fatal(err)
	}
	m := publishtest.Object{Name: "web", Version: 1}.Message(t, 0)
	// The look at the stream that follows the connection may find that it is gone.
	if _, err := publishNow(t, bus, m); err == nil && bus.Created() == 1 {
		t.Error("published to a stream that is not there")
	}
	waitFor(t, "published again", func() bool {
		_, err := publishNow(t, bus, m)
		return err == nil
	})
}

// TestStreamIsSpoiled: someone changes the stream while we are away.
func TestStreamIsSpoiled(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{URLs: []string{s.URL}, Cluster: publishtest.Cluster})
	js := observe(t, s.URL)
	config := bus.opts.streamConfig()
	config.Discard = jetstream.DiscardOld
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	waitFor(t, "refused", func() bool { return errors.Is(bus.Ready(), ErrMisconfigured) })
	if _, err := publishNow(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0)); !errors.Is(err, ErrMisconfigured) {
		t.Errorf("publish gives %v, want ErrMisconfigured", err)
	}
	waitFor(t, "mended", func() bool { // the observer has to connect again, too
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.UpdateStream(ctx, bus.opts.streamConfig())
		return err == nil
	})
	waitFor(t, "ready", func() bool { return bus.Ready() == nil })
}

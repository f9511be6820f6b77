package relay

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/forward"
	"github.com/kuberelay/kuberelay/internal/informers"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/relay/bus"
	"github.com/kuberelay/kuberelay/internal/workqueue"
)

// silent is a bus that accepts every message and acknowledges none. It fails them when it is closed.
type silent struct {
	publish.Bus // nil; its methods are not called

	losses func() uint64 // nil for no possible losses

	mu     sync.Mutex
	open   []func(uint64, error)
	closes int
	hangs  bool // Close does not return
	mute   bool // Close does not fail the messages in flight
}

var _ publish.Bus = (*silent)(nil)

var errClose = errors.New("the connection cannot be closed")

func (s *silent) Publish(_ context.Context, _ *event.Message, done func(uint64, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closes > 0 {
		go done(0, publish.ErrNotSent)
		return
	}
	s.open = append(s.open, done)
}

func (s *silent) Ready() error { return nil }

func (s *silent) PossibleLosses() uint64 {
	if s.losses == nil {
		return 0
	}
	return s.losses()
}

// Close fails the messages in flight and returns its error once, like the real buses.
func (s *silent) Close() error {
	s.mu.Lock()
	var open []func(uint64, error)
	if !s.mute {
		open, s.open = s.open, nil
	}
	s.closes++
	first := s.closes == 1
	s.mu.Unlock()
	for _, done := range open {
		done(0, publish.ErrNotSent)
	}
	if s.hangs {
		time.Sleep(time.Hour) // on the synctest clock
	}
	if first {
		return errClose
	}
	return nil
}

// shows is a set of informers that finds every object.
type shows struct{ *informers.Set }

func (s shows) Lookup(k event.Key) event.View {
	r := event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	v := event.View{Resource: r, Cause: event.CauseWatch, Observed: time.Now(), Live: &event.Object{
		APIVersion: "v1", Kind: r.Kind, Namespace: k.Namespace, Name: k.Name, UID: types.UID(k.Name), ResourceVersion: "7", Body: event.JSON([]byte(`{}`)),
	}}
	if s.Set != nil {
		v.Acked = s.Set.Lookup(k).Acked
	}
	return v
}

func configMapKey(name string) event.Key {
	return event.Key{Resource: "configmaps", Namespace: "default", Name: name}
}

// configMapMessage returns the event that creates an object of shows.
func configMapMessage(t *testing.T, name string) *event.Message {
	t.Helper()
	k := configMapKey(name)
	v := shows{}.Lookup(k)
	m, err := event.Builder{Cluster: "prod"}.Message(event.Change{Type: event.Created, Cause: v.Cause, Key: k, Resource: v.Resource, Observed: v.Observed, Object: v.Live})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// newTestTerm returns a term that publishes to a bus, without a cluster.
func newTestTerm(b *bus.Bus, drain time.Duration, log *slog.Logger) *term {
	limit := workqueue.Limit{Keys: 2}
	keys := ledger.New()
	r := &Relay{Config: Config{Logger: log}, ledger: keys, informers: informers.New(informers.Config{Ledger: keys, Now: time.Now, Logger: log, Registerer: prometheus.NewRegistry()})}
	acked := keys.NewTerm()
	r.Settings.Work.DrainTimeout, r.Settings.Event.Sink = drain, config.SinkNATS
	t := &term{Relay: r, bus: b, acked: acked, checkpoint: checkpoint.New(acked), metrics: &termRegisterer{Registerer: prometheus.NewRegistry()},
		queue: workqueue.New(workqueue.Config{Workers: 2, MaxInFlight: limit, MaxLowPriorityInFlight: limit, BaseDelay: time.Hour, MaxDelay: time.Hour})}
	t.reconciler = checkpoint.NewReconciler(t.checkpoint, nil, reconciled{t}, time.Hour, log)
	t.forwarder = forward.New(forward.Config{
		Informers: shows{r.informers}, Ledger: acked, Publish: t.publish, Recheck: func(event.Key) {}, Lost: func() bool { return false },
		Builder: event.Builder{Cluster: "prod"}, Go: func(f func()) { go f() }, Now: time.Now, Logger: log, Registerer: prometheus.NewRegistry(),
	})
	return t
}

// TestShutdownIsBounded verifies that one deadline, which counts from SIGTERM, bounds the shutdown
// regardless of which part does not end. In an earlier version, the wait for the informers was
// unbounded and preceded the drain's deadline, and the error of the first Close was lost.
func TestShutdownIsBounded(t *testing.T) {
	const drain = 20 * time.Second
	for name, c := range map[string]struct {
		informersEnd, busHangs bool
		want                   string
	}{
		"the informers do not stop": {false, false, errClose.Error()},
		"the bus does not respond":  {true, false, errClose.Error()},
		"the bus does not close":    {true, true, "not done within"},
		"nothing ends":              {false, true, "not done within"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var text bytes.Buffer
				log := slog.New(slog.NewTextHandler(&text, nil))
				sink := &silent{hangs: c.busHangs}
				tm := newTestTerm(&bus.Bus{Bus: sink, Readable: true}, drain, log)
				ctx, terminate := context.WithCancel(t.Context())
				w := &watching{ended: make(chan struct{})}
				w.ctx, w.stop = context.WithCancel(ctx)
				w.over, _ = endsAfter(w.ctx, drain)
				if c.informersEnd {
					context.AfterFunc(w.ctx, func() { close(w.ended) })
				}
				served := make(chan error, 1)
				go func() { served <- tm.serve(context.Background(), w) }()
				for _, name := range []string{"a", "b", "c"} {
					k := configMapKey(name)
					k.Namespace = name // the keys of one namespace would not use the whole limit
					tm.queue.Add(k)
				}
				synctest.Wait()
				begun := time.Now()
				terminate()
				var err error
				select {
				case err = <-served:
				case <-time.After(time.Hour):
					t.Error("the shutdown does not end")
					close(w.ended)
					err = <-served
				}
				err = errors.Join(err, w.end(log), tm.close())
				if took := time.Since(begun); took > drain+bus.CloseTimeout {
					t.Errorf("the shutdown took %s, want at most %s", took, drain+bus.CloseTimeout)
				}
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if want := "the next start publishes them\" keys=1 failed=0 in_flight=2"; !strings.Contains(text.String(), want) {
					t.Errorf("the log does not contain %q:\n%s", want, text.String())
				}
				if got := strings.Contains(text.String(), "informers did not stop in time"); got == c.informersEnd {
					t.Errorf("informers are reported: %v\n%s", got, text.String())
				}
				time.Sleep(2 * time.Hour) // until the remaining goroutines have ended
				if sink.closes != 1 {
					t.Errorf("the sink is closed %d times", sink.closes)
				}
			})
		})
	}
}

// TestTheLeaseIsLost verifies that a term that loses its lease closes the bus at once, also during a
// shutdown, although the informers run on and a message has no acknowledgement.
func TestTheLeaseIsLost(t *testing.T) {
	for name, shutsDown := range map[string]bool{"while it leads": false, "during a shutdown": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := &silent{}
				tm := newTestTerm(&bus.Bus{Bus: sink, Readable: true}, 20*time.Second, slog.New(slog.DiscardHandler))
				ctx, terminate := context.WithCancel(t.Context())
				w := &watching{ended: make(chan struct{})}
				w.ctx, w.stop = context.WithCancel(ctx)
				held, lose := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() { served <- tm.serve(held, w) }()
				tm.queue.Add(configMapKey("a"))
				synctest.Wait()
				if shutsDown {
					terminate()
				}
				synctest.Wait()
				if sink.closes > 0 || len(sink.open) != 1 {
					t.Fatalf("%d messages are open, and the bus is closed %d times", len(sink.open), sink.closes)
				}
				lose()
				synctest.Wait()
				if sink.closes != 1 {
					t.Error("the bus is not closed")
				}
				began := time.Now()
				if err := <-served; err != nil || !shutsDown && time.Since(began) > 0 {
					t.Errorf("got %v after %s", err, time.Since(began))
				}
				terminate()
			})
		})
	}
}

// TestShutdownPublishesToABusThatIsBack verifies that the drain retries keys in backoff if the bus
// is unavailable at SIGTERM and back soon after. The informers never stop, and the wait for them must
// leave time for the drain.
func TestShutdownPublishesToABusThatIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const drain = 20 * time.Second
		log := slog.New(slog.DiscardHandler)
		sink := &absent{takes: time.Second}
		tm := newTestTerm(&bus.Bus{Bus: sink}, drain, log)
		ctx, terminate := context.WithCancel(t.Context())
		w := &watching{ended: make(chan struct{})}
		w.ctx, w.stop = context.WithCancel(ctx)
		w.over, _ = endsAfter(w.ctx, drain)
		served := make(chan error, 1)
		go func() { served <- tm.serve(context.Background(), w) }()
		for _, name := range []string{"a", "b"} {
			tm.queue.Add(configMapKey(name))
		}
		synctest.Wait()
		if n := tm.queue.Delayed(); n != 2 {
			t.Fatalf("%d keys are in backoff before the shutdown, want 2", n)
		}
		terminate()
		time.Sleep(drain / 4)
		sink.back.Store(true)
		if err := <-served; err != nil {
			t.Error(err)
		}
		for _, name := range []string{"a", "b"} {
			if tm.acked.Get(configMapKey(name)) == (event.Acked{}) {
				t.Errorf("%s is not published although the bus was back", name)
			}
		}
		close(w.ended)
	})
}

// absent is a bus that rejects every message until it is back. After that, each acknowledgement
// arrives with a delay. Close fails the messages in flight.
type absent struct {
	publish.Bus // nil; its methods are not called

	back   atomic.Bool
	closed atomic.Bool
	takes  time.Duration
}

var _ publish.Bus = (*absent)(nil)

func (a *absent) Publish(_ context.Context, _ *event.Message, done func(uint64, error)) {
	if !a.back.Load() {
		done(0, publish.ErrNotSent)
		return
	}
	time.AfterFunc(a.takes, func() {
		if a.closed.Load() {
			done(0, publish.ErrNotSent)
			return
		}
		done(1, nil)
	})
}

func (*absent) Ready() error { return nil }

func (*absent) PossibleLosses() uint64 { return 0 }

func (a *absent) Close() error {
	a.closed.Store(true)
	return nil
}

// TestShutdownLeavesMessagesBehind verifies that a bus that never completes its messages, even when
// it is closed, does not block the shutdown.
func TestShutdownLeavesMessagesBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const drain = 20 * time.Second
		var text bytes.Buffer
		sink := &silent{mute: true}
		tm := newTestTerm(&bus.Bus{Bus: sink}, drain, slog.New(slog.NewTextHandler(&text, nil)))
		ctx, terminate := context.WithCancel(t.Context())
		w := &watching{ended: make(chan struct{})}
		w.ctx, w.stop = context.WithCancel(ctx)
		context.AfterFunc(w.ctx, func() { close(w.ended) })
		served := make(chan error, 1)
		go func() { served <- tm.serve(context.Background(), w) }()
		tm.queue.Add(configMapKey("a"))
		synctest.Wait()
		terminate()
		select {
		case err := <-served:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(drain + bus.CloseTimeout + time.Second): // on the synctest clock
			t.Error("the shutdown does not end while a message is in flight")
		}
		if want := "workers did not stop in time\" in_flight=1"; !strings.Contains(text.String(), want) {
			t.Errorf("the log does not contain %q:\n%s", want, text.String())
		}
		sink.mute = false
		_ = sink.Close() // completes the message, so that the remaining goroutines end
		synctest.Wait()
	})
}

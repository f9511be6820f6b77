package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/internal/event"
)

// onLog is a log handler that calls each for every message.
type onLog struct {
	slog.Handler
	each func(message string)
}

func (h onLog) Enabled(context.Context, slog.Level) bool { return true }

func (h onLog) Handle(_ context.Context, r slog.Record) error {
	h.each(r.Message)
	return nil
}

// TestInFlight verifies that an event that arrives within the settle time is not a difference.
func TestInFlight(t *testing.T) {
	w := newWorld(t)
	a, b := w.create(configMaps, "a", nil), w.create(configMaps, "b", nil)
	c, d := w.create(configMaps, "c", nil), w.create(configMaps, "d", nil)
	w.publish(event.Created, configMaps, b)
	w.publish(event.Created, configMaps, c)
	w.publish(event.Created, configMaps, d)
	later := w.touch(b)
	w.delete(configMaps, "c")
	w.delete(configMaps, "d")
	again := w.create(configMaps, "d", nil)

	var once sync.Once
	arrived := make(chan error, 1)
	w.opts.Settle = limit / 2
	w.opts.Logger = logger(func(message string) {
		if message != "waiting for events in flight" {
			return
		}
		once.Do(func() {
			go func() {
				var all error
				for _, e := range []struct {
					t event.Type
					o *unstructured.Unstructured
				}{{event.Created, a}, {event.Updated, later}, {event.Deleted, c}, {event.Deleted, d}, {event.Created, again}} {
					_, err := w.tryPublish(e.t, configMaps, e.o)
					all = errors.Join(all, err)
				}
				arrived <- all
			}()
		})
	})
	want(t, w.found())
	select {
	case err := <-arrived: // verify may see the last event before its writer has the acknowledgement
		if err != nil {
			t.Error(err)
		}
	case <-time.After(limit):
		t.Error("nothing was in flight")
	}
}

// busy changes one object constantly, and publishes some of its states a little late.
type busy struct {
	*world
	name string
	rand *rand.Rand
	now  *unstructured.Unstructured // in the cluster, nil if absent
	sent *unstructured.Unstructured // on the bus, nil if absent

	stuck bool // publishing has stopped
}

func (w *world) newBusy(name string, seed uint64) *busy {
	own := *w
	own.acked = map[event.Key]event.Acked{}
	return &busy{world: &own, name: name, rand: rand.New(rand.NewPCG(seed, 0))}
}

// run changes the object until ctx ends, and then publishes the rest.
func (b *busy) run(ctx context.Context, stuck <-chan struct{}) error {
	for ctx.Err() == nil {
		select {
		case <-stuck:
			b.stuck = true
		default:
		}
		for range 1 + b.rand.IntN(3) {
			if err := b.change(); err != nil {
				return err
			}
		}
		if err := b.catchUp(); err != nil {
			return err
		}
	}
	return nil
}

func (b *busy) change() (err error) {
	ctx := context.Background()
	client := b.client(configMaps)
	switch {
	case b.now == nil:
		b.now, err = client.Create(ctx, newObject(configMaps, b.name, nil), metav1.CreateOptions{})
	case b.rand.IntN(10) == 0 && !b.stuck: // an object that stays deleted would be right by chance
		err = client.Delete(ctx, b.name, metav1.DeleteOptions{})
		b.now = nil
	default:
		u := b.now.DeepCopy()
		u.Object["data"] = map[string]any{"n": fmt.Sprint(b.rand.Uint64())}
		b.now, err = client.Update(ctx, u, metav1.UpdateOptions{})
	}
	return err
}

func (b *busy) catchUp() error {
	if b.stuck {
		return nil
	}
	if b.sent != nil && (b.now == nil || b.now.GetUID() != b.sent.GetUID()) {
		if _, err := b.tryPublish(event.Deleted, configMaps, b.sent); err != nil {
			return err
		}
		b.sent = nil
	}
	if b.now == nil || b.sent != nil && b.sent.GetResourceVersion() == b.now.GetResourceVersion() {
		return nil
	}
	t := event.Updated
	if b.sent == nil {
		t = event.Created
	}
	_, err := b.tryPublish(t, configMaps, b.now)
	b.sent = b.now
	return err
}

const (
	busyObjects = 6
	stillOnes   = 300
	busyRounds  = 3
)

// TestContinuousChange_Slow verifies a cluster whose objects change constantly, with a bus that keeps
// only a few messages of each object. While the bus follows the cluster, verify must report no
// problem. When the bus stops following one object, verify must find exactly that object.
func TestContinuousChange_Slow(t *testing.T) {
	w := newWorld(t)
	for i := range stillOnes {
		u := w.create(configMaps, fmt.Sprintf("still-%d", i), nil)
		w.publish(event.Created, configMaps, u)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var working sync.WaitGroup
	stuck := make(chan struct{})
	for i := range busyObjects {
		b := w.newBusy(fmt.Sprintf("busy-%d", i), uint64(i))
		var signal chan struct{}
		if i == 0 {
			signal = stuck
		}
		working.Go(func() {
			if err := b.run(ctx, signal); err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s: %v", b.name, err)
			}
		})
	}
	defer working.Wait()
	defer cancel()

	w.opts.Settle = limit / 4 // time for a machine under load
	for range busyRounds {
		r, err := w.verify()
		if err != nil {
			t.Fatal(err)
		}
		if !r.Clean() {
			t.Fatalf("got %+v", r)
		}
		t.Logf("%s; %d in motion", r.Summary(), r.InMotion)
	}
	close(stuck)
	got := w.found()
	if len(got) != 1 || !strings.Contains(got[0], " busy-0: ") || strings.HasPrefix(got[0], "misordered") {
		t.Errorf("got %q", got)
	}
	cancel()
	working.Wait()
}

// TestInterrupted verifies that an interrupted run returns an error, and not a clean report.
func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	w.create(configMaps, "a", nil)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	w.opts.Settle = 10 * limit
	w.opts.Logger = logger(func(message string) {
		if message == "waiting for events in flight" {
			cancel()
		}
	})
	if r, err := Run(ctx, w.opts); !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v, %v", r, err)
	}
}

// TestManyCandidates verifies a run with more candidates than verify reads one by one or on one
// page. The API server expires the continue token of the first long list, so verify must list
// again.
func TestManyCandidates(t *testing.T) {
	w := newWorld(t)
	const objects = pageSize + 50
	for i := range objects {
		w.create(configMaps, fmt.Sprintf("c-%d", i), nil)
	}
	var expired, pages atomic.Int32
	w.opts.Kube.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Has("continue") && pages.Add(1) == 1 {
				expired.Add(1)
				body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`
				return &http.Response{
					StatusCode: http.StatusGone, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
				}, nil
			}
			return rt.RoundTrip(r)
		})
	})
	started := make(chan struct{})
	var once sync.Once
	w.opts.Settle = limit / 2
	w.opts.Logger = logger(func(message string) {
		if message == "waiting for events in flight" {
			once.Do(func() { close(started) })
		}
	})
	synced := make(chan error, 1)
	go func() {
		select {
		case <-started:
		case <-time.After(limit):
		}
		list, err := w.client(configMaps).List(context.Background(), metav1.ListOptions{})
		if err == nil {
			for i := range list.Items {
				if _, err = w.tryPublish(event.Created, configMaps, &list.Items[i]); err != nil {
					break
				}
			}
		}
		synced <- err
	}()
	r, err := w.verify()
	if err != nil || !r.Clean() || r.Objects != objects || r.Messages != objects {
		t.Errorf("got %s, %d problems, %v", r.Summary(), len(r.Problems), err)
	}
	if err := <-synced; err != nil {
		t.Error(err)
	}
	if expired.Load() != 1 || pages.Load() < 3 {
		t.Errorf("%d pages were asked for, %d of them expired", pages.Load(), expired.Load())
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func logger(each func(message string)) *slog.Logger {
	return slog.New(onLog{slog.DiscardHandler, each})
}

package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/informers"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/publish/stdout"
	"github.com/kuberelay/kuberelay/internal/relay/bus"
	"github.com/kuberelay/kuberelay/internal/workqueue"
)

// disk is a file on a disk with limited space, in bytes.
type disk struct {
	mu   sync.Mutex
	file bytes.Buffer
	room int
}

func (d *disk) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, _ := d.file.Write(p[:min(len(p), d.room)])
	if d.room -= n; n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// TestStdoutRecovers verifies that writes resume when a full disk has space again. An earlier
// version paused the queue after a failed write, so no write ever followed.
func TestStdoutRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		log, out := slog.New(slog.DiscardHandler), &disk{}
		cfg := config.Config{}
		cfg.Event.Sink = config.SinkStdout
		b, err := bus.Open(ctx, bus.Config{Settings: cfg, Out: stdout.NewOutput(out), Logger: log, Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		limit := workqueue.Limit{Keys: 10}
		keys := ledger.New()
		r := &Relay{Config: Config{Logger: log}, ledger: keys, informers: informers.New(informers.Config{Ledger: keys, Now: time.Now, Logger: log, Registerer: prometheus.NewRegistry()})}
		acked := keys.NewTerm()
		tm := &term{Relay: r, bus: b, acked: acked, checkpoint: checkpoint.New(acked), queue: workqueue.New(workqueue.Config{
			Workers: 2, MaxInFlight: limit, MaxLowPriorityInFlight: limit, BaseDelay: time.Second, MaxDelay: 10 * time.Second,
		})}
		tm.reconciler = checkpoint.NewReconciler(tm.checkpoint, nil, reconciled{tm}, time.Hour, log)
		var running sync.WaitGroup
		running.Go(func() {
			tm.queue.Run(ctx, func(ctx context.Context, k event.Key, done func(workqueue.Result)) {
				if acked.Get(k) != (event.Acked{}) { // RetryNow handed out the key, and its backoff ends later
					done(workqueue.Result{})
					return
				}
				tm.publish(ctx, configMapMessage(t, k.Name), func(_ uint64, err error) {
					if err == nil {
						acked.Put(k, event.Acked{UID: k.Name})
					}
					done(workqueue.Result{Err: err})
				})
			})
		})
		running.Go(func() { _ = tm.monitorBus(ctx) })

		line := len(structured(t, "a"))
		out.room = line + line/2 // only half of the second line fits
		for _, name := range []string{"a", "b", "c"} {
			tm.queue.Add(configMapKey(name))
			time.Sleep(time.Second)
		}
		if err := b.Ready(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("ready: %v, want that there is no room", err)
		}
		time.Sleep(time.Minute) // on the synctest clock
		out.mu.Lock()
		out.room = 100 * line
		out.mu.Unlock()
		time.Sleep(time.Minute)
		if err := b.Ready(); err != nil {
			t.Errorf("not ready with room: %v", err)
		}
		if n := tm.queue.Delayed(); n != 0 {
			t.Errorf("%d keys are not written a minute after there is room", n)
		}
		cancel()
		running.Wait()

		whole, torn := 0, 0
		for text := range strings.Lines(out.file.String()) {
			if _, err := event.ParseStructured([]byte(text)); err == nil {
				whole++
			} else {
				torn++
			}
		}
		if whole != 3 || torn != 1 {
			t.Errorf("%d whole lines and %d others, want 3 and the one that was torn:\n%s", whole, torn, out.file.String())
		}
	})
}

func structured(t *testing.T, name string) []byte {
	t.Helper()
	text, err := configMapMessage(t, name).Structured()
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

var _ io.Writer = (*disk)(nil)

package relay

import (
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/informers"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/publish/stdout"
	"github.com/kuberelay/kuberelay/internal/relay/bus"
	"github.com/kuberelay/kuberelay/internal/shape"
)

// TestATermThatDoesNotBegin verifies that a term that ends before it has begun, for example because the
// lease is lost while the checkpoint is loaded, leaves no goroutine. synctest reports such a goroutine.
func TestATermThatDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, keys := slog.New(slog.DiscardHandler), ledger.New()
		cfg := config.Config{}
		cfg.Event.Sink = config.SinkStdout
		shapes, err := shape.New(cfg.Content, func(event.Resource, error) {})
		if err != nil {
			t.Fatal(err)
		}
		b, err := bus.Open(t.Context(), bus.Config{Settings: cfg, Out: stdout.NewOutput(io.Discard), Logger: log, Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		r := &Relay{
			Config: Config{Settings: cfg, Logger: log}, shape: shapes, ledger: keys, cluster: &cluster{name: "prod"},
			informers: informers.New(informers.Config{Ledger: keys, Now: time.Now, Logger: log, Registerer: prometheus.NewRegistry()}),
		}
		if err := r.assemble(b, &termRegisterer{Registerer: prometheus.NewRegistry()}).close(); err != nil {
			t.Error(err)
		}
	})
}

package forward

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
)

// immediate is a bus that acknowledges each message immediately.
type immediate struct{ position uint64 }

func (i *immediate) publish(_ context.Context, _ *event.Message, done func(uint64, error)) {
	i.position++
	done(i.position, nil)
}

// BenchmarkSync measures one key from lookup to record, with a bus that acknowledges immediately.
func BenchmarkSync(b *testing.B) {
	for name, acked := range map[string]event.Acked{"created": {}, "unchanged": live("A", "11")} {
		b.Run(name, func(b *testing.B) {
			i, of := &immediate{}, quiet{&bench{view: view(object("A", "11")), acked: acked}}
			f := New(Config{
				Informers: of, Ledger: ledgerOf(acked), Publish: i.publish, History: of, Recheck: func(event.Key) {}, Builder: event.Builder{Cluster: "test"}, Go: func(f func()) { go f() }, Now: time.Now,
				Lost: func() bool { return false }, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
			})
			b.ReportAllocs()
			for b.Loop() {
				f.Sync(b.Context(), key, func(_ bool, err error) {
					if err != nil {
						b.Fatal(err)
					}
				})
			}
		})
	}
}

package forward

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
)

// BenchmarkDecide measures the decision alone, for the states that a resync, a watch and a
// restart cause.
func BenchmarkDecide(b *testing.B) {
	now := time.Unix(100, 0)
	for name, c := range map[string]struct {
		view  event.View
		acked event.Acked
	}{
		"unchanged":            {event.View{Live: object("A", "10"), Cause: event.CauseWatch, Observed: now}, live("A", "10")},
		"unchanged, projected": {event.View{Live: projected("A", "11", 1), Cause: event.CauseWatch, Observed: now}, projectedAcked("A", "10", 1)},
		"updated":              {event.View{Live: object("A", "11"), Cause: event.CauseWatch, Observed: now}, live("A", "10")},
		"deleted":              {event.View{Tombstones: []event.Tombstone{tombstone("A", "12")}}, live("A", "10")},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Decide(c.view, c.acked, "")
			}
		})
	}
}

// immediate is a bus that acknowledges at once.
type immediate struct{ position uint64 }

func (i *immediate) publish(_ context.Context, _ *event.Message, done func(uint64, error)) {
	i.position++
	done(i.position, nil)
}

// BenchmarkSync measures one key from lookup to record, with a bus that acknowledges at
// once.
func BenchmarkSync(b *testing.B) {
	for name, acked := range map[string]event.Acked{"created": {}, "unchanged": live("A", "11")} {
		b.Run(name, func(b *testing.B) {
			i, of := &immediate{}, &bench{view: view(object("A", "11"))}
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

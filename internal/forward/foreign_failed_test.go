package forward

import (
	"errors"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
)

// realLedger is a cluster with one key whose reports are in a real ledger.
type realLedger struct {
	*bench
	l *ledger.Ledger
}

func (r realLedger) Lookup(k event.Key) event.View {
	v := r.view
	r.l.Describe(k, &v)
	return v
}

func (realLedger) Shown(event.Key) string { return "" }
func (realLedger) Interest(event.Key) ledger.Interest {
	return ledger.Interest{Selected: true, Published: true}
}

// forwarderWith returns a forwarder whose last known event of the key is foreign, with a real ledger.
func (b *bench) forwarderWith(l *ledger.Ledger) *Forwarder {
	term := l.NewTerm()
	term.Put(key, foreign(live("A", "5")))
	f := b.forwarder()
	f.Informers, f.Ledger = realLedger{b, l}, term
	return f
}

// TestARepairThatFailsIsRetried verifies that a failed publish of a repair keeps the result of the
// consistent read, so the repair follows after the backoff. Before the fix, the queue forgot the key,
// and the repair waited for the next refresh.
func TestARepairThatFailsIsRetried(t *testing.T) {
	for name, v := range map[string]event.View{"exists": view(whole("A", "5", 1)), "gone": view(nil)} {
		t.Run(name, func(t *testing.T) {
			b := &bench{view: v, shown: at(live("X", "4"), foreignAt), answer: []answer{{err: errors.New("the stream is full")}, {position: 12}}}
			l := ledger.New()
			f := b.forwarderWith(l)
			if v.Live == nil {
				l.AddTombstone(key, event.Tombstone{UID: "A", Confirmed: true, Contradicts: 1, Cause: event.CauseReconcile, Observed: time.Now()})
			}
			l.MarkOutlived(key, event.Outlived{Position: foreignAt}, time.Now())
			if _, err := syncOnce(t, f); err == nil {
				t.Fatal("no error, so the key has no backoff")
			}
			if _, err := syncOnce(t, f); err != nil || len(b.sent) != 2 {
				t.Errorf("got %v and %d events, want the repair again", err, len(b.sent))
			}
		})
	}
}

// TestTombstonesOfAForeignKeyDuringAnOutage verifies that a key keeps one tombstone, however many
// objects have had its name while the bus was down. Before the fix, it kept all of them, because the
// read of the foreign event failed before anything was dropped.
func TestTombstonesOfAForeignKeyDuringAnOutage(t *testing.T) {
	b := &bench{view: view(nil), readErr: errors.New("not connected")}
	l := ledger.New()
	f := b.forwarderWith(l)
	for _, uid := range []string{"A", "B", "C", "D"} {
		l.AddTombstone(key, tombstone(uid, "6"))
		if _, err := syncOnce(t, f); err == nil {
			t.Fatal("no error")
		}
	}
	var v event.View
	if l.Describe(key, &v); len(v.Tombstones) != 1 || v.Tombstones[0].UID != "A" {
		t.Errorf("got %d tombstones, want that of A, which the bus shows", len(v.Tombstones))
	}
}

package sender

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAdmission(t *testing.T) {
	const stallAfter = 2 * time.Second
	now := time.Now()
	share := Share{Events: 3, Bytes: 100}
	for name, c := range map[string]struct {
		has   Share
		since time.Duration // age of the batch in flight
		bytes int
		want  bool
	}{
		"empty":                           {bytes: 10, want: true},
		"larger than the share":           {bytes: 1000, want: true},
		"room for one more":               {has: Share{2, 90}, bytes: 10, want: true},
		"as many as it may have":          {has: Share{3, 3}, bytes: 10},
		"as large as it may be":           {has: Share{1, 91}, bytes: 10},
		"a batch is on its way":           {has: Share{1, 1}, since: stallAfter, bytes: 10, want: true},
		"it acknowledges nothing":         {has: Share{1, 1}, since: stallAfter + 1, bytes: 10},
		"empty, and stalled all the same": {since: stallAfter + 1, bytes: 10},
	} {
		l := &Sender{Config: Config{Stall: stallAfter}, created: now.Add(-time.Hour), used: c.has}
		if c.since > 0 {
			l.since.Store(int64(time.Hour - c.since))
		}
		if got := l.Admit(c.bytes, share, now); got != c.want {
			t.Errorf("%s: admitted %t, want %t", name, got, c.want)
		}
		if want := (Share{c.has.Events + 1, c.has.Bytes + c.bytes}); c.want && l.used != want {
			t.Errorf("%s: it holds %+v, want %+v", name, l.used, want)
		}
	}
}

// TestAStallFromTheStart verifies that a batch counts as stalled even if the sender sends it at the moment
// when it is created.
func TestAStallFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := testSender(t, &partition{}, func(l *Sender) {
			l.Stall, l.known = time.Second, 1
			l.Produce = func(ctx context.Context, _ string, _ int, _ []byte) (int64, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			}
		})
		l.Add(new(answers).item("a"))
		time.Sleep(2 * time.Second)
		if !l.IsStalled(time.Now()) {
			t.Error("the sender does not count as stalled")
		}
		if got := l.TakeForeign(7); len(got) > 0 {
			t.Errorf("took %v for offsets of other writers, but they can belong to the batch", got)
		}
	})
}

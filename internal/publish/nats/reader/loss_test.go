package reader

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// TestLossesInOrder verifies that a response that arrives after a later one does not count as a
// loss.
func TestLossesInOrder(t *testing.T) {
	var l losses
	now := time.Now()
	for _, i := range []int{1, 3, 2, 4} {
		info := &jetstream.StreamInfo{TimeStamp: now.Add(time.Duration(i)), State: jetstream.StreamState{Msgs: 9, FirstSeq: 1, LastSeq: uint64(10 * i)}}
		if count, _ := l.observe(info, now, now); count != 0 {
			t.Errorf("got %d losses with answer %d", count, i)
		}
	}
}

// TestLossesAtTheSameTime verifies that a response with an old state does not count as a loss. The
// server may read the state of the stream, respond to a later request, and only then set the time of
// the first response. An earlier version counted that as a loss.
func TestLossesAtTheSameTime(t *testing.T) {
	var l losses
	start := time.Now()
	observe := func(last uint64, told, asked, answered time.Duration, want uint64) {
		t.Helper()
		info := &jetstream.StreamInfo{TimeStamp: start.Add(told), State: jetstream.StreamState{Msgs: 9, FirstSeq: 1, LastSeq: last}}
		if count, _ := l.observe(info, start.Add(asked), start.Add(answered)); count != want {
			t.Errorf("the end at %d: got %d losses, want %d", last, count, want)
		}
	}
	observe(20, 3, 2, 4, 0)
	observe(10, 5, 1, 6, 0)
	observe(10, 8, 7, 9, 1)
}

// TestLosses verifies that a new, shortened or emptied stream counts as a loss, and so does a long
// absence. A stream that is empty, grows, or drops its oldest messages does not.
func TestLosses(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	info := func(stream int, messages, first, last uint64) *jetstream.StreamInfo {
		return &jetstream.StreamInfo{
			Created: start.Add(time.Duration(stream)), State: jetstream.StreamState{Msgs: messages, FirstSeq: first, LastSeq: last},
		}
	}
	const near, far = time.Second, publish.MaxAway + time.Second
	for _, test := range []struct {
		name   string
		before *jetstream.StreamInfo
		now    *jetstream.StreamInfo
		after  time.Duration
		want   uint64
	}{
		{"same", info(1, 10, 1, 10), info(1, 10, 1, 10), near, 0},
		{"empty, with a first sequence", info(1, 0, 100, 99), info(1, 0, 100, 99), near, 0},
		{"first message", info(1, 0, 100, 99), info(1, 1, 100, 100), near, 0},
		{"dropped the oldest", info(1, 10, 1, 10), info(1, 10, 9, 20), near, 0},
		{"recreated", info(1, 10, 1, 10), info(2, 10, 1, 10), near, 1},
		{"lost its end", info(1, 10, 1, 10), info(1, 9, 1, 9), near, 1},
		{"purged", info(1, 10, 1, 10), info(1, 0, 11, 10), near, 1},
		{"purged and written since", info(1, 10, 1, 10), info(1, 3, 11, 13), near, 1},
		{"away", info(1, 10, 1, 10), info(1, 10, 1, 10), far, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var l losses
			count, changed := l.observe(test.before, start, start)
			if count != 0 {
				t.Fatalf("got %d losses at the first observation", count)
			}
			if got, _ := l.observe(test.now, start.Add(test.after), start.Add(test.after)); got != test.want {
				t.Errorf("got %d losses, want %d", got, test.want)
			}
			select {
			case <-changed:
				if test.want == 0 {
					t.Error("the channel is closed")
				}
			default:
				if test.want > 0 {
					t.Error("the channel is open")
				}
			}
		})
	}
}

// TestARecreatedStreamIsALoss verifies that a subscription ends if the stream was recreated, even if the
// bus ignored the responses that show it, because the clock of the new leader is behind.
func TestARecreatedStreamIsALoss(t *testing.T) {
	b, created, ack := busWithMessage(t)
	s := subscription{b: b, started: true, created: created.CachedInfo().Created.Add(-time.Hour), seen: ack.Sequence, opts: publish.SubscribeOptions{UntilLost: true}}
	if err := s.locate(t.Context()); !errors.Is(err, publish.ErrLost) {
		t.Errorf("got %v at position %d, want a loss", err, s.seen)
	}
}

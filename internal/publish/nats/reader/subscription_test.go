package reader

import (
	"errors"
	"slices"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// lossy returns messages 1 and 3, as if the second message was lost on its way, and then an error.
type lossy struct{ n uint64 }

func (l *lossy) Next(time.Duration) (*stream.Message, *natsgo.MsgMetadata, error) {
	l.n++
	number := 2*l.n - 1
	if number > 3 {
		return nil, nil, errors.New("no more")
	}
	return &stream.Message{Subject: "kuberelay", Sequence: number + 10}, &natsgo.MsgMetadata{Sequence: natsgo.SequencePair{Consumer: number}}, nil
}

// TestSubscribeGap verifies that a gap ends the consumer before the message after the gap is
// processed.
func TestSubscribeGap(t *testing.T) {
	var foreign []uint64
	s := subscription{opts: publish.SubscribeOptions{Foreign: func(d publish.Delivery, _ error) { foreign = append(foreign, d.Position) }}}
	if err := s.takeAll(t.Context(), &lossy{}, false); err == nil || s.seen != 11 || !slices.Equal(foreign, []uint64{11}) {
		t.Errorf("got %v at %d after %d, want an error at 11 after [11]", err, s.seen, foreign)
	}
}

// TestSnapshotOfAStreamThatLostItsEnd verifies that a subscription doesn't wait for positions that the
// stream has lost. Otherwise its snapshot would never end.
func TestSnapshotOfAStreamThatLostItsEnd(t *testing.T) {
	b, created, ack := busWithMessage(t)
	caught := false
	s := subscription{
		b: b, started: true, created: created.CachedInfo().Created, seen: ack.Sequence + 1, reached: ack.Sequence + 2, until: ack.Sequence + 3,
		opts: publish.SubscribeOptions{CaughtUp: func(publish.Cursor) error { caught = true; return nil }},
	}
	if err := s.locate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.seen != ack.Sequence || s.until > s.seen {
		t.Errorf("the subscription is at %d and reads a snapshot up to %d, want %d", s.seen, s.until, ack.Sequence)
	}
	if err := s.caughtUp(0); err != nil || !caught {
		t.Errorf("the snapshot is complete: %t, %v", caught, err)
	}
}

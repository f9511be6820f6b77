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
	if err := s.takeAll(&lossy{}, false); err == nil || s.seen != 11 || !slices.Equal(foreign, []uint64{11}) {
		t.Errorf("got %v at %d after %d, want an error at 11 after [11]", err, s.seen, foreign)
	}
}

package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// At returns the event of an object at a position, including its data, from the stream leader. It
// returns the zero value if the event no longer exists, and an error if the event belongs to
// another object. If the message is not a Kuberelay event or its data cannot be read, Object is
// nil, but Acked.Position is set.
//
// If ctx has no deadline, At waits for the acknowledgement timeout, but at least one second.
func (b *Bus) At(ctx context.Context, k event.Key, position uint64) (publish.Stored, error) {
	s, err := b.conn.GetMessage(ctx, stream.SequenceRequest(position))
	if want := subject.Object(b.opts.SubjectPrefix, b.opts.Cluster, k); err == nil && s != nil && s.Subject != want {
		err = fmt.Errorf("the message has subject %s, want %s", s.Subject, want)
	}
	if err != nil {
		return publish.Stored{}, fmt.Errorf("read the event of %s at %d: %w", k, position, err)
	}
	if s == nil {
		return publish.Stored{}, nil
	}
	result, invalid := s.Stored()
	if invalid != nil {
		b.opts.Invalid.Report("", s.Sequence, invalid, "subject", s.Subject)
	}
	return result, nil
}

// Purge removes the events of an object up to and including a position. Later events stay, so the
// position need not be the last one. Purge can be repeated.
func (b *Bus) Purge(ctx context.Context, k event.Key, upTo uint64) error {
	if upTo == 0 {
		return nil
	}
	fail := func(err error) error { return fmt.Errorf("purge %s up to %d: %w", k, upTo, err) }
	request, _ := json.Marshal(struct {
		Filter   string `json:"filter"`
		Sequence uint64 `json:"seq"` // exclusive
	}{subject.Object(b.opts.SubjectPrefix, b.opts.Cluster, k), upTo + 1})
	if err := b.opts.Permit.Check(); err != nil {
		return fail(err)
	}
	answer, err := b.conn.Request(ctx, "STREAM.PURGE", request)
	if err != nil {
		return fail(err)
	}
	var body struct {
		Error   *jetstream.APIError `json:"error"`
		Success bool                `json:"success"`
	}
	if err := json.Unmarshal(answer.Data, &body); err != nil {
		return fail(err)
	}
	if body.Error != nil {
		return fail(stream.APIFailure(body.Error))
	}
	if !body.Success {
		return fail(errors.New("the server did not confirm the purge"))
	}
	return nil
}

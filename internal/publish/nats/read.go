package nats

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// Last reads the last event of an object, whole, from the stream's leader; the
// zero value if there is none. Object is nil where the message is no event of
// ours, or its data cannot be read; Acked.Position is set all the same.
//
// Without a deadline in ctx it waits for the acknowledgement timeout, but at least
// for a second.
func (b *Bus) Last(ctx context.Context, k event.Key) (publish.Stored, error) {
	subject := event.Subject(b.opts.SubjectPrefix, b.opts.Cluster, k)
	s, err := b.getMessage(ctx, lastRequest(subject))
	if err != nil {
		return publish.Stored{}, fmt.Errorf("read the last event of %s: %w", k, err)
	}
	return b.stored(s), nil
}

// At is as [Bus.Last], but reads the event at a position. It gives the zero value
// if there is none any more, and an error if it is another object's.
func (b *Bus) At(ctx context.Context, k event.Key, position uint64) (publish.Stored, error) {
	request, _ := json.Marshal(map[string]uint64{"seq": position}) // a number cannot fail
	s, err := b.getMessage(ctx, request)
	if err == nil && s != nil && s.subject != event.Subject(b.opts.SubjectPrefix, b.opts.Cluster, k) {
		err = fmt.Errorf("it is of subject %s", s.subject)
	}
	if err != nil {
		return publish.Stored{}, fmt.Errorf("read the event of %s at %d: %w", k, position, err)
	}
	return b.stored(s), nil
}

// Before reads the event that comes before a position among those of one subject; nil
// if there is none any more, or it is no event of ours. It asks the stream's leader once
// for each that is there, of which [Options.History] are.
func (b *Bus) Before(ctx context.Context, subject string, position uint64) (*event.Message, error) {
	var last *stored
	for from := uint64(1); ; from = last.sequence + 1 {
		request, _ := json.Marshal(struct { // cannot fail
			Sequence uint64 `json:"seq"` // that, or the next of the subject
			Subject  string `json:"next_by_subj"`
		}{from, subject})
		next, err := b.getMessage(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("read what is before %d of subject %q: %w", position, subject, err)
		}
		if next == nil || next.sequence >= position {
			break
		}
		last = next
	}
	if last == nil {
		return nil, nil
	}
	_, _, key, marker, err := event.ParseSubject(subject)
	if err != nil {
		return nil, nil //nolint:nilerror // as documented
	}
	m, err := Decode(last.headers, last.data)
	if err != nil {
		return nil, nil //nolint:nilerror // likewise
	}
	m.Key, m.Marker = key, marker
	return m, nil
}

func (b *Bus) stored(s *stored) publish.Stored {
	if s == nil {
		return publish.Stored{}
	}
	result := publish.Stored{Acked: s.acked()}
	if result.Acked.UID == "" {
		b.log.Warn("a message on the bus is no event of ours", "subject", s.subject, "position", s.sequence)
		return result
	}
	m, err := Decode(s.headers, s.data)
	if err == nil {
		result.Object, err = event.ObjectFromData(m.Attribute, m.Data)
	}
	if err != nil {
		b.log.Warn("the data of an event on the bus cannot be read", "subject", s.subject, "position", s.sequence, "err", err)
		result.Object = nil
	}
	return result
}

func (b *Bus) getMessage(ctx context.Context, request []byte) (*stored, error) {
	answer, err := b.request(ctx, "STREAM.MSG.GET", request)
	if err != nil {
		return nil, err
	}
	return parseStored(answer)
}

// Purge removes the events of an object up to and including the given position.
// Those after it stay, so it may be called with a position that is no longer the
// last. It removes nothing twice and may be repeated.
func (b *Bus) Purge(ctx context.Context, k event.Key, upTo uint64) error {
	if upTo == 0 {
		return nil
	}
	fail := func(err error) error { return fmt.Errorf("purge %s up to %d: %w", k, upTo, err) }
	request, _ := json.Marshal(struct {
		Filter   string `json:"filter"`
		Sequence uint64 `json:"seq"` // exclusive
	}{event.Subject(b.opts.SubjectPrefix, b.opts.Cluster, k), upTo + 1})
	if err := b.opts.permitted(); err != nil {
		return fail(err)
	}
	answer, err := b.request(ctx, "STREAM.PURGE", request)
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
		return fail(apiFailure(body.Error))
	}
	if !body.Success {
		return fail(fmt.Errorf("the server did not say that it succeeded"))
	}
	return nil
}

// api is the subject of a request to the JetStream API about our stream.
func (b *Bus) api(what string) string { return "$JS.API." + what + "." + b.opts.Stream }

// apiTimeout is for requests that have no deadline. Some take the server longer
// than an acknowledgement.
func (b *Bus) apiTimeout() time.Duration { return max(b.opts.AckTimeout, time.Second) }

func (b *Bus) request(ctx context.Context, what string, data []byte) (*natsgo.Msg, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, b.apiTimeout())
		defer cancel()
	}
	return b.nc.RequestWithContext(ctx, b.api(what), data)
}

package nats

import (
	"encoding/json"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/outcome"
)

// readLast asks for the last message of f's subject, to learn why its publish
// was refused. It is asked of the stream's leader, never by direct get: a replica
// may not have the very message that refused ours.
func (b *Bus) readLast(f *flight) {
	f.reading = true
	f.deadline = time.Now().Add(b.opts.AckTimeout)
	token, ok := b.flights.again(f)
	if !ok {
		b.finish(f, 0, errClosed)
		return
	}
	request := &natsgo.Msg{Subject: b.api("STREAM.MSG.GET"), Reply: b.reply(token), Data: lastRequest(f.subject)}
	if err := b.nc.PublishMsg(request); err != nil && b.flights.take(token) != nil {
		b.finish(f, 0, b.sendFailure(err, request))
	}
}

// resolve completes f by what its subject's last message is.
func (b *Bus) resolve(f *flight, answer *natsgo.Msg) {
	last, err := parseStored(answer)
	if err != nil {
		b.finish(f, 0, err)
		return
	}
	if last != nil && outcome.IsSame(f.m, last.attribute()) {
		b.finishAs(outcome.AlreadyStored, f, last.sequence, nil)
		return
	}
	conflict := &publish.ConflictError{Key: f.m.Key}
	if last != nil {
		conflict.Bus = last.acked()
	}
	b.finish(f, 0, conflict)
}

// stored is a message as the stream holds it.
type stored struct {
	subject  string
	sequence uint64
	time     time.Time
	headers  natsgo.Header
	data     []byte
}

// attribute gives the event's attributes, "" for all if it is no event.
func (s *stored) attribute() func(string) string {
	if isStructured(s.headers) && get(s.headers, stateHeader("id")) == "" {
		// Of another writer, without our headers.
		if m, err := Decode(s.headers, s.data); err == nil {
			return m.Attribute
		}
	}
	return stateOf(s.headers)
}

// acked is what the checkpoint should hold of the message. One that is no event of
// ours has a position only, so that the next event of the object can follow it.
func (s *stored) acked() event.Acked {
	acked, err := event.AckedFrom(s.attribute())
	if err != nil {
		acked = event.Acked{}
	}
	acked.Position, acked.Stored = s.sequence, uint32(s.time.Unix())
	return acked
}

func lastRequest(subject string) []byte {
	request, _ := json.Marshal(map[string]string{"last_by_subj": subject}) // strings cannot fail
	return request
}

// parseStored reads the answer to a STREAM.MSG.GET request; nil if there is no
// such message.
func parseStored(answer *natsgo.Msg) (*stored, error) {
	if isNoResponders(answer) {
		return nil, errNoStream
	}
	var body struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Time     time.Time `json:"time"`
			Headers  []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer.Data, &body); err != nil {
		return nil, fmt.Errorf("the server's answer is no message: %w", err)
	}
	switch {
	case body.Error != nil && body.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case body.Error != nil:
		return nil, apiFailure(body.Error)
	case body.Message == nil:
		return nil, fmt.Errorf("the server's answer is no message")
	}
	s := &stored{subject: body.Message.Subject, sequence: body.Message.Sequence, time: body.Message.Time, data: body.Message.Data}
	if len(body.Message.Headers) > 0 {
		headers, err := natsgo.DecodeHeadersMsg(body.Message.Headers)
		if err != nil {
			return nil, fmt.Errorf("the message's headers: %w", err)
		}
		s.headers = headers
	}
	return s, nil
}

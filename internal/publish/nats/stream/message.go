package stream

import (
	"encoding/json"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
)

// Message is a message as stored in the stream.
type Message struct {
	Subject  string
	Sequence uint64
	Time     time.Time
	Headers  natsgo.Header // nil if the headers cannot be parsed
	Data     []byte

	headersErr error // why the headers cannot be parsed
}

// Attributes returns a function that returns the event's attributes, or "" for every attribute if
// the message is not an event.
func (s *Message) Attributes() func(string) string {
	return binding.Attributes(s.Headers, s.Data)
}

// Acked returns the checkpoint entry for the message. If the message is not a valid Kuberelay event,
// Acked sets only the position and time, and returns an error with an [event.InvalidReason]. With
// the position, the next event of the object can follow the message.
func (s *Message) Acked() (event.Acked, error) {
	acked, err := event.AckedFrom(s.Attributes())
	if s.headersErr != nil {
		err = s.headersErr
	}
	acked.Position = s.Sequence
	acked.StoredAt(s.Time)
	return acked, err
}

// Decode decodes the event, including its data. An error has an [event.InvalidReason].
func (s *Message) Decode() (*event.Message, error) {
	if s.headersErr != nil {
		return nil, s.headersErr
	}
	m, err := binding.Decode(s.Headers, s.Data)
	if err != nil {
		return nil, event.Invalid(event.InvalidEvent, err)
	}
	return m, nil
}

// Stored returns the event with its object. It sets the position even if it returns an error. The
// error has an [event.InvalidReason].
func (s *Message) Stored() (publish.Stored, error) {
	acked, err := s.Acked()
	result := publish.Stored{Acked: acked}
	if err != nil {
		return result, err
	}
	m, err := s.Decode()
	is := event.Acked{}
	if err == nil { // subscribers read a structured event's body, not its headers
		is, err = event.AckedFrom(m.Attribute)
	}
	is.Position, is.Time = acked.Position, acked.Time
	result.Acked = is
	if err == nil {
		err = result.Read(m)
	}
	if err != nil {
		return result, event.Invalid(event.InvalidData, err)
	}
	return result, nil
}

// Resolve finds out why the stream rejected m. last is the last message of the subject, or nil if
// the subject has none. If last equals m and was stored after the message that m expects, an
// earlier attempt stored m. An earlier message doesn't count, because an object that outlived its
// delete on the bus (see [event.Outlived]) can have a second delete with the same ID.
//
// If there is a conflict, position is 0. If last is not a Kuberelay event, invalid is the reason.
func Resolve(m *event.Message, last *Message) (position uint64, conflict *publish.ConflictError, invalid error) {
	if last != nil && last.Sequence > m.Expected {
		if is, err := binding.Decode(last.Headers, last.Data); err == nil && publish.IsSame(m, is) {
			return last.Sequence, nil, nil
		}
	}
	conflict = &publish.ConflictError{Key: m.Key}
	if last != nil {
		conflict.Bus, invalid = last.Acked()
	}
	return 0, conflict, invalid
}

// ParseMessage parses the response to a STREAM.MSG.GET request. It returns nil if the requested
// message does not exist.
func ParseMessage(answer *natsgo.Msg) (*Message, error) {
	if IsNoResponders(answer) {
		return nil, ErrNoStream
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
		return nil, fmt.Errorf("the server's response is not a message: %w", err)
	}
	switch {
	case body.Error != nil && body.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case body.Error != nil:
		return nil, APIFailure(body.Error)
	case body.Message == nil:
		return nil, fmt.Errorf("the server's response has no message")
	}
	s := &Message{Subject: body.Message.Subject, Sequence: body.Message.Sequence, Time: body.Message.Time, Data: body.Message.Data}
	if len(body.Message.Headers) > 0 {
		headers, err := natsgo.DecodeHeadersMsg(body.Message.Headers)
		if err != nil { // anyone can publish such headers, and the server stores them
			s.headersErr = event.Invalid(event.InvalidHeaders, fmt.Errorf("parse the headers: %w", err))
		} else {
			s.Headers = headers
		}
	}
	return s, nil
}

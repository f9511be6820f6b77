package publish

import (
	"errors"
	"fmt"
	"time"
)

// Progress is the progress of a stream consumer, or of a consumer group in one partition.
type Progress struct {
	// Acknowledged is the position up to which all messages are acknowledged: a stream sequence
	// number, or an offset. Delivered is the position of the last delivered message, or nil if the
	// bus does not report that position.
	Acknowledged int64
	Delivered    *int64
	Behind       int64 // messages that are not acknowledged

	Filters []string // the subjects that the consumer receives; empty means all
	Start   Start
}

// Start describes the messages that a consumer skipped when it was created: those below Position,
// and those stored before Time. The acknowledged position of the consumer covers the skipped
// messages too. The zero value skips nothing.
type Start struct {
	Position int64
	Time     time.Time
	// Last means that the consumer began with the last message of the stream, even if that was
	// stored before Time.
	Last bool
	Why  string // the consumer setting that caused the skip
}

// Skips returns why a consumer does not receive a message that is older than the consumer, or "" if
// the consumer receives it. If sure is false, the consumer might have received the message.
func (s Start) Skips(d Delivery) (why string, sure bool) {
	at := s.Time.UTC().Format(time.RFC3339)
	switch {
	case s.Position > int64(d.Position):
		return fmt.Sprintf("it began after this event: %s, %d", s.Why, s.Position), true
	case d.Stored.IsZero() || !d.Stored.Before(s.Time):
		return "", true
	case s.Last:
		return fmt.Sprintf("it was created after this event, at %s, and %s: it received the event only if the event was the last message", at, s.Why), false
	}
	return fmt.Sprintf("it began after this event: %s, since %s", s.Why, at), true
}

// ErrNoConsumer means that the named consumer or group does not exist.
var ErrNoConsumer = errors.New("no such consumer")

package publish

import (
	"errors"
	"fmt"
	"time"
)

// Progress is the progress of a consumer of a stream, or of a consumer group in a partition.
type Progress struct {
	// Acknowledged is the position up to which everything is acknowledged: a sequence of the stream, or an
	// offset. Delivered is the position of the last delivered message, nil if the bus does not know it.
	Acknowledged int64
	Delivered    *int64
	Behind       int64 // messages that are not acknowledged

	Filters []string // the subjects that the consumer gets; none for all
	Start   Start
}

// Start says which messages a consumer skipped when it was created: those below the position, and
// those that were stored before the time. Acknowledged covers them too. The zero value has none.
type Start struct {
	Position int64
	Time     time.Time
	// Last means that the message before the time, if it was the last one, is not skipped.
	Last bool
	Why  string // the setting of the consumer
}

// Skips says why a consumer does not get a message that is older than the consumer, "" if it does. Not
// sure means that it may get it.
func (s Start) Skips(d Delivery) (why string, sure bool) {
	at := s.Time.UTC().Format(time.RFC3339)
	switch {
	case s.Position > int64(d.Position):
		return fmt.Sprintf("it began after this event: %s, %d", s.Why, s.Position), true
	case d.Stored.IsZero() || !d.Stored.Before(s.Time):
		return "", true
	case s.Last:
		return fmt.Sprintf("it was created after this event, at %s, and %s: it began with the event only if that was the last message", at, s.Why), false
	}
	return fmt.Sprintf("it began after this event: %s, since %s", s.Why, at), true
}

// ErrNoConsumer is in the chain of the error if there is no such consumer or group.
var ErrNoConsumer = errors.New("no such consumer")

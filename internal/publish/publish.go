// Package publish holds the contract between the forwarder and a bus. The buses
// are in its subpackages, and one contract test runs over all of them
// (publishtest).
package publish

import (
	"context"
	"errors"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Publisher puts messages on a bus.
//
// An acknowledgement is the bus's own word that it has stored the message: on
// NATS the stream's, on Kafka that of all in-sync replicas. Until it is in, a
// message counts as not sent, whatever else is known of it.
//
// The caller has at most one message in flight per key. That is what keeps the
// order of one object's events; a Publisher may hold messages of different keys
// back, batch or reorder them as it likes.
type Publisher interface {
	// Publish hands m over and returns without waiting for the
	// acknowledgement; it may block while too much is in flight. It calls done
	// exactly once, from any goroutine, possibly before it returns, within a
	// bounded time even if the bus never answers:
	//
	//	position, nil    stored, at that position; also where an earlier attempt
	//	                 at the same id turns out to have been stored
	//	*ConflictError   refused, because the bus holds something else of this
	//	                 object than the message expected; the error says what
	//	ErrTooLarge      the bus will never take a message of this size
	//	ErrNotSent       it was not handed to the bus, so it is certainly not stored
	//	anything else    unknown or failed: the message may or may not be stored.
	//	                 Publishing the same or a later state again is safe
	//
	// m must not change until done is called. Done is quick, as acknowledgements of
	// other messages may wait while it runs. So it does not block, and does not call
	// Publish, which may; except that on ErrTooLarge it may publish a smaller form.
	//
	// Ctx bounds the waiting for room; it does not recall a message that is on its
	// way.
	Publish(ctx context.Context, m *event.Message, done func(position uint64, err error))

	// Ready is nil while the bus can be reached, else an error that says why not.
	// It does not block.
	Ready() error

	// Close fails what is still in flight and releases the connection. It is
	// idempotent and does not wait for the bus beyond a few seconds.
	Close() error
}

// ErrTooLarge is what a message gets that exceeds the bus's limit on size.
var ErrTooLarge = errors.New("message is larger than the bus takes")

// ErrNotSent is what a message gets that never left: the bus was known to be away,
// or the publisher is closed.
var ErrNotSent = errors.New("not sent")

// ErrGone is in the chain of Ready's error where the connection has ended and will not
// be made again: only another process, or another publisher, can help.
var ErrGone = errors.New("the connection to the bus has ended for good")

// ConflictError says that the bus holds another last event of the object than
// the publisher expected: someone else wrote, or the object's events were
// purged. Bus is what it does hold: the zero value for nothing, and a position only
// where the last message is no event of ours, which the next may follow.
type ConflictError struct {
	Key event.Key
	Bus event.Acked
}

func (e *ConflictError) Error() string {
	switch {
	case e.Bus.UID == "" && e.Bus.Position == 0:
		return fmt.Sprintf("publish %s: the bus holds no event of it", e.Key)
	case e.Bus.UID == "":
		return fmt.Sprintf("publish %s: the bus holds a message of another writer at %d", e.Key, e.Bus.Position)
	}
	return fmt.Sprintf("publish %s: the bus holds uid %s version %s at %d", e.Key, e.Bus.UID, e.Bus.ResourceVersion, e.Bus.Position)
}

// Stored is one object's last event as read back from a bus.
type Stored struct {
	Acked  event.Acked
	Object *event.Object // nil if only the headers were read
}

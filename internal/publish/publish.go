// Package publish defines the contract between the forwarder and a bus. The subpackages
// implement it, and one contract test (publishtest) runs against all of them.
package publish

import (
	"context"
	"errors"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Publisher publishes messages to a bus.
//
// An acknowledgement is the bus's confirmation that it has stored the message: on NATS from the
// stream, on Kafka from all in-sync replicas. Without an acknowledgement, the message might or might
// not be stored.
//
// The caller has at most one message in flight per key. This keeps the events of each object in
// order. A Publisher may delay, batch, or reorder messages of different keys.
type Publisher interface {
	// Publish sends m and returns without waiting for the acknowledgement. It can block
	// while too many messages are in flight. It calls done exactly once, from any
	// goroutine, possibly before it returns, and within a bounded time even if the bus
	// never responds:
	//
	//	position, nil    stored at that position, possibly by an earlier attempt with
	//	                 the same ID
	//	*ConflictError   rejected: the last event of the object on the bus is not the
	//	                 one that the message expects. The error contains the
	//	                 event on the bus
	//	ErrTooLarge      the bus will never accept a message of this size
	//	ErrNotSent       the message was not sent to the bus and is certainly not stored
	//	anything else    the outcome is unknown: the message might be stored. It is safe
	//	                 to publish the same or a later state again
	//
	// The text of each error begins with "publish" and the ID of the message.
	//
	// The caller must not change m before done is called. done must not block, because
	// acknowledgements of other messages may wait for it. It must not call Publish, except after
	// ErrTooLarge, when it may publish a smaller form of the message.
	//
	// ctx bounds the wait for the in-flight limit. It does not cancel a message that was
	// sent.
	Publish(ctx context.Context, m *event.Message, done func(position uint64, err error))

	// Ready returns nil while the bus is reachable, and otherwise an error with the reason. It does
	// not block.
	Ready() error

	// Close fails the messages in flight and closes the connection. It is idempotent and
	// waits at most a few seconds for the bus.
	Close() error
}

// ErrTooLarge means that a message exceeds the size limit of the bus.
var ErrTooLarge = errors.New("message exceeds the size limit of the bus")

// ErrNotSent means that a message was not sent to the bus, for example because the bus was not ready
// or the publisher is closed.
var ErrNotSent = errors.New("not sent")

// ErrGone means that the connection has ended and that this publisher will not reconnect. Only
// another process or another publisher can continue.
var ErrGone = errors.New("connection to the bus closed permanently")

// ConflictError means that the last event of the object on the bus is not the event that the
// publisher expected: another writer published, or the object's events were purged. Bus is that
// last event, or the zero value if the bus has none. If the last message is not a Kuberelay event,
// Bus has only its position, and the next event can follow that message.
type ConflictError struct {
	Key event.Key
	Bus event.Acked
}

func (e *ConflictError) Error() string {
	switch {
	case e.Bus.UID == "" && e.Bus.Position == 0:
		return "the bus has no event of the object"
	case e.Bus.UID == "":
		return fmt.Sprintf("the bus has a message of another writer at %d", e.Bus.Position)
	}
	return fmt.Sprintf("the bus has uid %s version %s at %d", e.Bus.UID, e.Bus.ResourceVersion, e.Bus.Position)
}

// Permit is called before each write to a bus. An error prevents the write. A nil Permit allows all
// writes.
type Permit func() error

// Check returns the error of the permit.
func (p Permit) Check() error {
	if p == nil {
		return nil
	}
	return p()
}

// Stored is an event of an object, read from a bus.
type Stored = event.Stored

// NotSent returns an error that wraps [ErrNotSent] and err.
func NotSent(err error) error {
	if errors.Is(err, ErrNotSent) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotSent, err)
}

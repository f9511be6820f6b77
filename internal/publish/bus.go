package publish

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Bus is a Publisher whose messages can be read back. Each back end implements Bus, except a sink
// that can't be read back, which is only a Publisher. Methods with a context can block on the bus
// until the context ends. The other methods don't block.
type Bus interface {
	Publisher

	// Wait blocks until the bus is ready. It returns an error when ctx ends, or when a
	// retry cannot succeed.
	Wait(ctx context.Context) error

	// Load yields the last event of every object of the cluster and returns the first error of
	// yield. If it yields a key more than once, the last call counts.
	Load(ctx context.Context, yield func(event.Key, event.Acked) error) error

	// At returns the event of an object at a position. It returns the zero value if the bus no
	// longer has the event.
	At(ctx context.Context, k event.Key, position uint64) (Stored, error)

	// Purge removes an object's events up to and including a position. Later events stay. If Purge
	// returns [event.ErrNewest], it can't remove the events yet.
	Purge(ctx context.Context, k event.Key, upTo uint64) error

	// LastMarker returns the type and ID of the last snapshot marker of a resource. It returns "" if
	// the bus has none.
	LastMarker(ctx context.Context, gr schema.GroupResource) (t event.Type, id string, err error)

	// LastClaim returns the last claim of the cluster name. It returns the zero value if the bus has
	// none.
	LastClaim(ctx context.Context) (event.Claim, error)

	// PossibleLosses returns how many incidents since the bus was opened might have lost acknowledged
	// messages. An incident is a new stream or topic, a topic that is missing or lacks recorded
	// messages, a stream leader election, or a lost connection.
	PossibleLosses() uint64

	// Risks returns the settings that allow the bus to lose acknowledged messages, as last read. It
	// returns nothing before the bus is ready, and omits settings that can't be read.
	Risks() []Risk

	// Stream identifies the current stream (see [event.Claim]). It returns "" if the bus has no
	// stream, or can't identify its streams.
	Stream() string
}

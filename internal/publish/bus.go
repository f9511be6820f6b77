package publish

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Bus is what a back end implements: a Publisher whose messages can be read back. A sink
// that cannot be read back is only a Publisher. Methods with a context may block on the bus until
// it ends; the others don't block.
type Bus interface {
	Publisher

	// Wait blocks until the bus is ready. It returns an error when ctx ends, or when a
	// retry cannot succeed.
	Wait(ctx context.Context) error

	// Load yields the last event of every object of the cluster and returns the first error
	// of yield. It may yield a key twice; the last call counts.
	Load(ctx context.Context, yield func(event.Key, event.Acked) error) error

	// At returns the event of an object at a position, and the zero value if the bus no
	// longer has it.
	At(ctx context.Context, k event.Key, position uint64) (Stored, error)

	// Purge removes an object's events up to and including a position; later events stay.
	// If it returns [event.ErrNewest], it left the object unchanged for now.
	Purge(ctx context.Context, k event.Key, upTo uint64) error

	// LastMarker returns the type and ID of the last snapshot marker of a resource, "" for
	// none.
	LastMarker(ctx context.Context, gr schema.GroupResource) (t event.Type, id string, err error)

	// LastClaim returns the last claim of the cluster name, the zero value for none.
	LastClaim(ctx context.Context) (event.Claim, error)

	// PossibleLosses returns how often the bus may have lost acknowledged messages since it was
	// opened: a stream or topic was recreated, a stream elected a leader, or a connection to it was
	// lost.
	PossibleLosses() uint64

	// Risks returns the settings that allow the bus to lose acknowledged messages, as last
	// read. It returns none before the bus was ready, and leaves out settings that cannot
	// be read.
	Risks() []Risk

	// Stream identifies the current stream, see [event.Claim]; "" if the bus has none, or
	// cannot identify its streams.
	Stream() string
}

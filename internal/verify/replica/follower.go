package replica

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/verify/normal"
	"github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// source delivers the messages of a bus to a follower.
type source interface {
	// lasts yields the position of each object's last message.
	lasts(ctx context.Context, each func(event.Key, uint64)) error
	// run delivers new messages until ctx ends, on a bus that pushes them.
	run(ctx context.Context, f *Follower)
	// catchUp delivers everything that is on the bus when it is called. catchUpWith delivers at
	// least the messages of one object, and reports whether it had to wait for messages. On a bus
	// that is read on demand, it returns false.
	catchUp(ctx context.Context, f *Follower) error
	catchUpWith(ctx context.Context, f *Follower, k event.Key) (more bool, err error)
	// EventAt reads the message of an object at a position. found reports whether there is one. A
	// message that isn't an event has no attributes.
	EventAt(ctx context.Context, k event.Key, position uint64) (e wire.Event, found bool, err error)
	// Has reports whether the bus still has a message of an object whose messages the follower has
	// read. It returns false only on NATS, after a purge.
	Has(ctx context.Context, k event.Key) (bool, error)
	// partitions returns the partitions with a resource's events, as far as they were read.
	partitions(gr schema.GroupResource) []int
	// FormatPositions adds the end of the read to a report, and formats its positions for people, in
	// the notation of the bus. Call it last, because the positions can't be used afterwards.
	FormatPositions(r *report.Report)
	// Close closes the connection to the bus.
	Close() error
}

// ErrChanged means that the messages read so far might be invalid: the bus lost messages, was recreated, or
// was unreachable for so long that it might have lost messages.
var ErrChanged = fmt.Errorf("while verify read the bus, the bus lost messages, was recreated, or was unreachable for more than %s; run verify again", publish.MaxAway)

// Options are the settings of a follower.
type Options struct {
	Cluster   string // the cluster's name on the bus
	Form      normal.Form
	Retention time.Duration // how long the events of a deleted object stay
	Repeats   bool          // Kafka: an event can be on the bus several times in a row
}

// Follower reads the bus from its oldest message on. Its methods are safe for concurrent use.
type Follower struct {
	source

	place place
	form  normal.Form

	at func(k event.Key, position uint64) (wire.Event, bool, error) // see [source.EventAt]

	// ends contains the position of each object's last message before reading began. The data of
	// earlier messages isn't compared.
	ends map[event.Key]uint64

	mu      sync.Mutex
	history *history
	read    map[publish.Log]uint64 // the position up to which everything is read
	moved   chan struct{}          // closed and replaced at each change
	trouble error                  // why no messages arrive; nil if they do
	ended   error                  // why run ended
}

// leastAge is the minimum age of a delete that the forwarder purges early, because the bus has too many
// (docs/delivery.md). The writer then forgets the delete.
const leastAge = 5 * time.Minute

func newFollower(bus source, p place, f normal.Form, depth int, retention time.Duration) *Follower {
	return &Follower{
		source: bus, place: p, form: f, ends: map[event.Key]uint64{}, read: map[publish.Log]uint64{}, moved: make(chan struct{}),
		history: &history{
			depth: depth, retention: min(retention, leastAge), now: time.Now, show: decimal,
			objects: map[event.Key]*object{}, markers: map[markerLog]string{}, points: newPoints(),
			doubts: map[event.Key][]doubt{}, open: map[event.Key][]int{},
		},
	}
}

func decimal(position uint64) string { return strconv.FormatUint(position, 10) }

// askWith sets the context of the reads that the follower might need in order to process a message.
func (f *Follower) askWith(ctx context.Context) {
	f.at = func(k event.Key, position uint64) (wire.Event, bool, error) { return f.EventAt(ctx, k, position) }
	f.history.kept = func(k event.Key, position uint64) (bool, error) {
		_, found, err := f.at(k, position)
		return found, err
	}
}

// Start records the position of each object's last message. Call it before Run and CatchUp.
func (f *Follower) Start(ctx context.Context) error {
	return f.lasts(ctx, func(k event.Key, position uint64) { f.ends[k] = position })
}

// Objects returns the number of objects that Start found.
func (f *Follower) Objects() int { return len(f.ends) }

// Cluster returns the name of the cluster on the bus.
func (f *Follower) Cluster() string { return f.place.Cluster }

// Run reads new messages, on a bus that pushes them, until ctx ends or the bus can't be read.
func (f *Follower) Run(ctx context.Context) { f.run(ctx, f) }

// CatchUp reads up to the end of the bus at the time of the call.
func (f *Follower) CatchUp(ctx context.Context) error { return f.catchUp(ctx, f) }

// CatchUpWith reads at least the events of one object that are on the bus at the time of the call.
func (f *Follower) CatchUpWith(ctx context.Context, k event.Key) error {
	_, err := f.catchUpWith(ctx, f, k)
	return err
}

// change makes a change and wakes the goroutines that wait for one.
func (f *Follower) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.moved)
	f.moved = make(chan struct{})
}

// ResolveDoubts reads each object in doubt until its doubts are excused or its last message is
// read. It then reports the doubts that are not excused.
func (f *Follower) ResolveDoubts(ctx context.Context) error {
	f.mu.Lock()
	upTo := uint64(0)
	for _, position := range f.read {
		upTo = max(upTo, position)
	}
	f.mu.Unlock()
	for {
		open := f.openDoubts(upTo)
		waiting := false
		for _, k := range open {
			more, err := f.catchUpWith(ctx, f, k)
			if err != nil {
				return err
			}
			waiting = waiting || more
		}
		if !waiting {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history.settleDoubts(upTo)
	return nil
}

func (f *Follower) openDoubts(upTo uint64) []event.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	var keys []event.Key
	for k, doubts := range f.history.doubts {
		if slices.ContainsFunc(doubts, func(d doubt) bool { return d.problem.Position <= upTo && !f.history.excused(k, d) }) {
			keys = append(keys, k)
		}
	}
	return keys
}

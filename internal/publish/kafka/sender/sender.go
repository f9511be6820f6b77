package sender

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// ErrDataLost ends a session. It means that the brokers lost acknowledged records.
var ErrDataLost = errors.New("the brokers lost acknowledged records")

// Produce is one attempt to store a batch.
type Produce func(ctx context.Context, topic string, partition int, batch []byte) (base int64, err error)

// Config configures a [Sender]: its partition, its producer, and the callbacks of its session.
type Config struct {
	Topic     string
	Partition int
	Produce   Produce
	Producer  recordbatch.Producer
	Codec     recordbatch.Compression
	Limit     int                             // size limit of a batch in bytes, before compression
	Ready     func(ctx context.Context) error // blocks while no batch may be sent; nil for no limit
	Stall     time.Duration                   // age of an unacknowledged batch at which the sender counts as stalled
	Fail      func(error)                     // ends the session
	Attempted func(s *Sender, err error)      // called after each attempt that will be repeated, and after the next one that succeeds
	Sent      func(records, bytes int)        // called for every batch, for the metrics
	Marker    func(unread int64)              // records the session's marker of an event partition; nil for the checkpoint topic
}

// Sender sends the records of one partition, one batch at a time. Until the broker responds, it
// resends the batch with the same sequence numbers, so the broker recognizes a batch that it already
// stored. The partition receives every record once, in the order of Add, even if requests or
// responses are lost.
//
// A sender sends a batch as soon as the previous batch is acknowledged. The batch has the records
// that were added by then, so the sender needs no linger time to fill it.
type Sender struct {
	Config

	created time.Time
	since   atomic.Int64 // start of the batch in flight, or of the wait for Ready, in nanoseconds after created; 0 for none

	mu           sync.Mutex
	waiting      []*Item // added, not in a batch yet
	closed       error   // why Add fails; nil while it does not
	used         Share   // used by the events that are admitted and not complete
	last         LastStored
	known        int64         // every record below this offset was written by the sender, was read by the session, or is in unread; 0 before the first record
	unread       Spans         // offsets that other writers have written, see TakeUnread
	isMarked     bool          // the session's marker is recorded
	markedUnread int64         // Unread in the recorded entry of the session's marker
	awake        chan struct{} // wakes Run after Add

	// timestamp is the timestamp of the last batch, or the bound that NotBefore set. The timestamps
	// of a key never decrease, because some readers treat the record with the latest timestamp as
	// the last one. The sender uses the current time instead of the time of the event, because
	// brokers use timestamps to expire producers (producer.id.expiration.ms,
	// ProducerStateManager.isProducerExpired). After a restart, a broker does not know a producer
	// whose last batch seems older than a day. It would then store a resent batch of that producer
	// a second time.
	timestamp time.Time

	// Used only by Run.
	failing  bool // the last attempt failed
	sequence int32
	buffer   []byte
}

// New returns a Sender. The caller calls Run.
func New(c Config) *Sender {
	s := &Sender{Config: c, created: time.Now(), awake: make(chan struct{}, 1)}
	if c.Producer.ID < 0 {
		s.sequence = recordbatch.NoSequence
	}
	return s
}

// Add appends an item. After Run has ended, Add completes the item with an error instead. It does not
// block.
func (s *Sender) Add(it *Item) {
	s.mu.Lock()
	closed := s.closed
	if closed == nil {
		s.waiting = append(s.waiting, it)
	}
	s.mu.Unlock()
	if closed != nil {
		it.Done(0, publish.NotSent(closed))
		return
	}
	select {
	case s.awake <- struct{}{}:
	default:
	}
}

// Withdraw removes an item that is not in a batch yet and reports whether it did. It does
// not call [Item.Done].
func (s *Sender) Withdraw(it *Item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.waiting {
		if other == it {
			s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// Run sends records until ctx ends. Then it completes all remaining items with an error.
func (s *Sender) Run(ctx context.Context) {
	for {
		items, batch := s.take(ctx)
		if len(items) == 0 {
			break
		}
		s.send(ctx, items, batch)
		s.working(false)
	}
	s.mu.Lock()
	s.closed = context.Cause(ctx)
	left := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	for _, it := range left {
		it.Done(0, publish.NotSent(context.Cause(ctx)))
	}
}

// isReady blocks until a batch may be sent or ctx ends, and reports whether a batch may be sent.
func (s *Sender) isReady(ctx context.Context) bool {
	if s.Ready != nil {
		s.working(true)
		defer s.working(false)
		if s.Ready(ctx) != nil {
			return false
		}
	}
	return ctx.Err() == nil
}

// take waits for records and returns as many as fit into a batch. It returns no items after ctx has
// ended.
func (s *Sender) take(ctx context.Context) ([]*Item, *recordbatch.Batch) {
	for {
		if !s.isReady(ctx) {
			return nil, nil
		}
		s.mu.Lock()
		s.timestamp = later(s.timestamp, wallClock())
		batch, n := batchOf(s.waiting, s.Limit, s.timestamp)
		items := s.waiting[:n:n]
		if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
			s.waiting = nil // releases the array of sent items
		}
		s.mu.Unlock()
		if len(items) > 0 {
			return items, batch
		}
		select {
		case <-s.awake:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

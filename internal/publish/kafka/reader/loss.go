package reader

import (
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// bounds are the first offset and the end of a partition at one moment.
type bounds struct {
	start, end int64
	at         time.Time // without the monotonic clock, which stops while the machine is suspended
}

// observe records the bounds of a partition. With UntilLost, it returns an error if the subscription
// may have missed records.
func (s *subscription) observe(log publish.Log, now bounds) error {
	before, ok := s.seen[log]
	s.seen[log] = now
	position, resumed := s.target.opts.Cursor.Positions[log]
	switch {
	case !s.target.opts.UntilLost:
	case ok && before.lost(now), !ok && resumed && now.misses(publish.Offset(position)+1):
		return fmt.Errorf("topic %s, partition %d: %w", log.Topic, log.Partition, publish.ErrLost)
	}
	return nil
}

// lost reports whether records may have been removed between two observations: the log starts later,
// it ends earlier, or the observations are more than [publish.MaxAway] apart. Compaction moves neither
// bound.
func (b bounds) lost(now bounds) bool {
	return now.start > b.start || now.end < b.end || now.at.Sub(b.at) > publish.MaxAway
}

// misses reports whether a read that continues at the offset next may miss records, because the log
// starts after it or ends before it.
func (b bounds) misses(next int64) bool { return next < b.start || next > b.end }

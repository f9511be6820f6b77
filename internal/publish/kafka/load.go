package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
)

// Load yields the last event of every object of the cluster, as of the call or later. It may yield
// an object again with a later position, and the last one counts. It leaves out snapshot markers.
// If Load cannot yield all objects, it returns an error. It returns an error of yield unchanged.
//
// The first call yields the events that takeOver found. Later calls read the checkpoint topic. They
// also check that the checkpoint topic and the event topics still hold what the session has
// written. If they do not, Load returns an error, and a new session determines what is left.
func (b *Bus) Load(ctx context.Context, yield func(event.Key, event.Acked) error) error {
	s, err := b.current()
	if s == nil {
		return fmt.Errorf("load the checkpoint: %w", err)
	}
	l := loading{b: b, s: s, yield: yield}
	if loaded := s.takeLoaded(); loaded != nil {
		for key, e := range loaded {
			if err := l.take([]byte(key), e); err != nil {
				return err
			}
		}
		return l.yieldForeign()
	}
	if err := l.run(ctx); err != nil {
		if l.yieldErr != nil {
			return l.yieldErr
		}
		return fmt.Errorf("load the checkpoint: %w", err)
	}
	return nil
}

// loading is one call of Load.
type loading struct {
	b     *Bus
	s     *session
	start map[string][]int64 // first offsets of the partitions, by topic; nil while the call yields what takeOver found
	end   map[string][]int64 // end offsets of the partitions, by topic

	// replaced has a function for each foreign entry that the load replaced. The function reports
	// the entry as invalid. It is called only after the brokers have stored the replacement. If
	// they reject the replacement, another writer has taken over, and the entry is that writer's
	// own.
	replaced []func()

	mu       sync.Mutex // serializes yield, guards replaced
	yield    func(event.Key, event.Acked) error
	yieldErr error
}

func (l *loading) run(ctx context.Context) error {
	l.b.opts.Reading.Begin()
	defer l.b.opts.Reading.End()
	l.start, l.end = map[string][]int64{}, map[string][]int64{}
	ctx, release := l.s.bound(ctx) // otherwise, the load would wait for a session that has ended
	defer release()
	if err := l.check(ctx, append(l.s.opened(), l.s.checkpoint)...); err != nil {
		return err
	}
	if err := l.s.flush(ctx); err != nil {
		return err
	}
	offsets, err := l.b.client.Offsets(ctx, l.b.opts.CheckpointTopic)
	if err != nil {
		return err
	}
	senders := l.s.checkpoint.senders // partitions that were added later have no entries
	parts := make([]doubts, len(senders))
	err = broker.Each(ctx, len(parts), func(ctx context.Context, home int) error {
		parts[home] = doubts{home, senders[home].TakeForeign(offsets.End[home]), map[string]doubt{}}
		return l.readEntries(ctx, parts[home], offsets.End[home])
	})
	if err == nil {
		err = l.check(ctx, l.s.checkpoint) // if the topic has lost its end, the entries that were read are incomplete
	}
	if err == nil {
		err = l.readForeign(ctx)
	}
	for _, d := range parts {
		replaced := false
		if err == nil {
			replaced, err = l.replaceAll(ctx, d)
		}
		if !replaced {
			senders[d.home].PutBack(d.unread)
		}
	}
	if err != nil || len(l.replaced) == 0 {
		return err
	}
	if err := l.s.flush(ctx); err != nil {
		return err
	}
	for _, report := range l.replaced {
		report()
	}
	return nil
}

// readEntries yields the entries in a partition of the checkpoint topic, except those in
// doubt, which it adds to d.
func (l *loading) readEntries(ctx context.Context, d doubts, until int64) error {
	err := l.b.stored.ReadCounted(ctx, l.b.opts.Reading, l.b.opts.CheckpointTopic, d.home, 0, until, func(r broker.Record) error {
		c := l.b.stored.Checkpoint(r, d.home)
		isForeign := d.unread.Contains(r.Offset)
		switch {
		case isForeign && l.isObject(r.Key), l.isStray(d.home, r.Key, c.Entry):
			d.last[string(r.Key)] = doubt{r.Offset, isForeign, c.Entry}
		case c.Kind == record.OfEvent, c.Kind == record.Removed:
			delete(d.last, string(r.Key))
			return l.take(r.Key, c.Entry)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read partition %d of the checkpoint topic %q: %w", d.home, l.b.opts.CheckpointTopic, err)
	}
	return nil
}

// check ends the session if a partition no longer holds the last record that the session wrote to
// it, or the session's marker.
func (l *loading) check(ctx context.Context, topics ...*topic) error {
	ctx, cancel := context.WithTimeout(ctx, 3*l.b.opts.AckTimeout) // a partition may have no leader
	defer cancel()
	offsets := make([]broker.Offsets, len(topics))
	places := placesIn(topics)
	lasts := make([]sender.LastStored, len(places))
	for i, at := range places {
		lasts[i] = at.t.senders[at.p].LastStored()
	}
	err := broker.Each(ctx, len(topics), func(ctx context.Context, i int) (err error) {
		offsets[i], err = l.b.client.Offsets(ctx, topics[i].name)
		if len(offsets[i].Start) < len(topics[i].senders) && err == nil {
			err = fmt.Errorf("%w: topic %q has fewer partitions", sender.ErrDataLost, topics[i].name)
		}
		return err
	})
	for i, t := range topics {
		l.start[t.name], l.end[t.name] = offsets[i].Start, offsets[i].End
	}
	if err == nil {
		err = broker.Each(ctx, len(places), func(ctx context.Context, i int) error { return l.compare(ctx, places[i], lasts[i]) })
	}
	switch {
	case errors.Is(err, sender.ErrDataLost), errors.Is(err, broker.ErrNoTopic):
		err = fmt.Errorf("%w: %w", sender.ErrDataLost, err)
		l.s.end(err)
	case errors.Is(err, errRenew):
		l.s.end(err)
	}
	return err
}

// compare checks that a partition still holds the last record that the session wrote to it, and the
// session's marker. Both checks are necessary. If the log was recreated, the session may have
// written the record to the new log. If the log lost its end, the marker may precede the lost part.
//
// Compaction removes the record only if it has no value, or if the sender has stored more records
// since. Compaction removes the marker, which has no value, after delete.retention.ms. That time is
// rarely shorter than a session. After the removal, compare asks for a renewal of the session, and
// the next session writes another marker.
func (l *loading) compare(ctx context.Context, at place, last sender.LastStored) error {
	topic, p := at.t.name, at.p
	start, end, offset := l.start[topic][p], l.end[topic][p], last.Next-1
	if end < last.Next {
		return fmt.Errorf("%w: partition %d of topic %q ends at offset %d, but offset %d was stored", sender.ErrDataLost, p, topic, end, offset)
	}
	if offset < start {
		return nil // the records were deleted, see take
	}
	r, found, err := l.b.stored.ReadOne(ctx, topic, p, offset)
	isLast := found && last.Is(r.Key, r.Value, r.Headers)
	marker := keyedEntry{Key: l.s.markerKey(topic, p), Entry: at.t.markers[p]}
	switch {
	case err != nil:
		return err
	case !isLast && (found || !last.Tombstone && at.t.senders[p].LastStored() == last):
		return fmt.Errorf("%w: partition %d of topic %q has another record at offset %d than was stored", sender.ErrDataLost, p, topic, offset)
	case marker.Offset < start:
		return nil
	}
	found, is, err := l.b.stored.Holds(ctx, marker)
	switch {
	case err != nil || is:
		return err
	case !found && marker.NoValue:
		return fmt.Errorf("%w: compaction removed the marker of the session from partition %d of topic %q", errRenew, p, topic)
	}
	return fmt.Errorf("%w: partition %d of topic %q was recreated", sender.ErrDataLost, p, topic)
}

// take yields an entry, or the zero value if the bus has lost the event. It skips markers.
func (l *loading) take(key []byte, e entry) error {
	if e.Type != "" {
		return nil
	}
	_, k, err := event.ParsePartitionKey(string(key))
	if err != nil {
		return nil //nolint:nilerror // a removed marker
	}
	acked := e.Acked()
	if last := l.s.index.Position(index.Of(key)); last != 0 && e != (entry{}) {
		acked.Position = last // the session knows the position, whoever wrote the record
	}
	start, open := l.start[e.Topic]
	switch {
	case e == (entry{}) && l.s.index.Position(index.Of(key)) != 0:
		return nil // another partition of the checkpoint topic has the entry of the key
	case e == (entry{}):
		acked = event.Acked{}
	case l.start == nil: // takeOver has just found the event
	case !open, e.Partition >= len(start), e.Offset < start[e.Partition]: // the topic or the records were deleted, or never existed
		if e.Topic == l.b.topics.Template.Of(k) { // the last event can have the same position in another topic
			l.s.index.Lost(index.Of(key), e.Position())
		}
		acked = event.Acked{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.yieldErr == nil {
		l.yieldErr = l.yield(k, acked)
	}
	return l.yieldErr
}

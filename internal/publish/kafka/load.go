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
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reload"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// Load yields the last event of every object of the cluster, as of the call or later. It can yield
// an object again with a later position, and the last one counts. It leaves out markers.
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
	start reload.Bounds      // nil while the call yields what takeOver found
	end   map[string][]int64 // end offsets of the partitions, by topic

	// replaced contains a function for each foreign entry that the load replaced. The function
	// reports the entry as invalid. It is called only after the brokers have stored the
	// replacement. If they reject the replacement, another writer has taken over, and the entry is
	// that writer's own.
	replaced []func()

	mu       sync.Mutex // serializes yield, guards replaced
	yield    func(event.Key, event.Acked) error
	yieldErr error
}

func (l *loading) run(ctx context.Context) error {
	l.b.opts.Reading.Begin()
	defer l.b.opts.Reading.End()
	l.start, l.end = reload.Bounds{}, map[string][]int64{}
	ctx, release := l.s.bound(ctx) // so that the load does not wait for a session that has ended
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
	parts := make([]*doubts, len(senders))
	err = broker.Each(ctx, len(parts), func(ctx context.Context, home int) error {
		parts[home] = &doubts{
			reload.Doubts{Home: home, Spread: l.s.recorder.Spread, Topics: l.start, Last: map[string]reload.Doubt{}}, senders[home].TakeForeign(offsets.End[home]),
		}
		return l.readEntries(ctx, parts[home], offsets.End[home])
	})
	if err == nil {
		err = l.check(ctx, l.s.checkpoint) // if the topic has lost its end, the entries that were read are incomplete
	}
	if err == nil {
		err = l.readForeign(ctx)
	}
	for _, d := range parts {
		if d == nil {
			continue // after an error, broker.Each skips the remaining partitions
		}
		replaced := false
		if err == nil {
			replaced, err = l.replaceAll(ctx, d)
		}
		if !replaced {
			senders[d.Home].PutBack(d.unread)
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
func (l *loading) readEntries(ctx context.Context, d *doubts, until int64) error {
	return l.b.stored.ReadCheckpoint(ctx, l.b.opts.Reading, d.Home, until, func(r broker.Record, c record.Checkpoint) error {
		isForeign := d.unread.Contains(r.Offset) && l.isObject(r.Key)
		if d.Read(r.Offset, string(r.Key), c, isForeign, l.s.index.Position(index.Of(r.Key))) {
			return l.take(r.Key, c.Entry)
		}
		return nil
	})
}

// check reads the bounds of the topics' partitions into l. If a partition no longer holds the last
// record that the session wrote to it, or the session's marker, or if an event topic has new
// partitions, check ends the session and returns an error.
func (l *loading) check(ctx context.Context, topics ...*topic) error {
	ctx, cancel := context.WithTimeout(ctx, 3*l.b.opts.AckTimeout) // a partition might have no leader
	defer cancel()
	offsets := make([]broker.Offsets, len(topics))
	places := placesIn(topics)
	lasts := make([]sender.LastStored, len(places))
	for i, at := range places {
		lasts[i] = at.t.senders[at.p].LastStored()
	}
	err := broker.Each(ctx, len(topics), func(ctx context.Context, i int) (err error) {
		offsets[i], err = l.b.client.Offsets(ctx, topics[i].name)
		switch n := len(topics[i].senders); {
		case err != nil:
			return err
		case len(offsets[i].Start) < n:
			return fmt.Errorf("%w: topic %q has fewer partitions than before", sender.ErrDataLost, topics[i].name)
		case len(offsets[i].Start) > n && topics[i] != l.s.checkpoint:
			return fmt.Errorf("%w: topic %q has new partitions, which need consistency points too", errRenew, topics[i].name)
		}
		return nil
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

// compare performs the reads that [reload.Log.Verdict] requests. It returns an error if the
// partition no longer holds what the session wrote to it.
func (l *loading) compare(ctx context.Context, at place, last sender.LastStored) error {
	topic, p := at.t.name, at.p
	log := reload.Log{Start: l.start[topic][p], End: l.end[topic][p], Next: last.Next, Marker: at.t.markers[p]}
	for {
		switch log.Verdict() {
		case reload.Intact:
			return nil
		case reload.ReadLast:
			r, found, err := l.b.stored.ReadOne(ctx, topic, p, last.Next-1)
			if err != nil {
				return err
			}
			log.Last = lookup(found, found && last.Is(r.Key, r.Value, r.Headers))
			log.Replaceable = last.Tombstone || at.t.senders[p].LastStored() != last
		case reload.ReadMarker:
			found, is, err := l.b.stored.Holds(ctx, takeover.Keyed{Key: l.s.markerKey(topic, p), Entry: log.Marker})
			if err != nil {
				return err
			}
			log.AtMarker = lookup(found, is)
		case reload.Shortened:
			return fmt.Errorf("%w: partition %d of topic %q ends at offset %d, but offset %d was stored", sender.ErrDataLost, p, topic, log.End, log.Next-1)
		case reload.Replaced:
			return fmt.Errorf("%w: in partition %d of topic %q, the record at offset %d is missing or was replaced", sender.ErrDataLost, p, topic, log.Next-1)
		case reload.Recreated:
			return fmt.Errorf("%w: partition %d of topic %q was recreated", sender.ErrDataLost, p, topic)
		case reload.Compacted:
			return fmt.Errorf("%w: compaction removed the marker of the session from partition %d of topic %q", errRenew, p, topic)
		}
	}
}

func lookup(found, is bool) reload.Lookup {
	switch {
	case is:
		return reload.Expected
	case found:
		return reload.Other
	}
	return reload.Missing
}

// take yields the last event of an object according to an entry. It skips markers.
func (l *loading) take(key []byte, e entry) error {
	id := index.Of(key)
	acked, outcome := l.start.Take(e, l.s.index.Position(id))
	_, k, err := event.ParsePartitionKey(string(key))
	if outcome == reload.Skip || err != nil {
		return nil //nolint:nilerror // the key is that of a removed marker
	}
	if outcome == reload.Lost && e.Topic == l.b.topics.Template.Of(k) { // the last event can have the same position in another topic
		l.s.index.Lost(id, e.Position())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.yieldErr == nil {
		l.yieldErr = l.yield(k, acked)
	}
	return l.yieldErr
}

package reader

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// target receives the records of all partitions, one at a time.
type target struct {
	mu        sync.Mutex
	opts      publish.SubscribeOptions
	yield     func(*event.Message, publish.Delivery) error
	delivered int   // number of records: events, tombstones, and foreign records
	err       error // the error of yield or CaughtUp

	behind  map[publish.Log]bool   // logs that are not read to their end yet; nil before the topics are found
	reached map[publish.Log]uint64 // end positions of the logs that are read to their end
	topics  map[string]string      // IDs of the topics at the start
}

// caughtUp records that a log was read to its end, and calls CaughtUp after the last log.
func (t *target) caughtUp(log publish.Log, next int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil || !t.behind[log] {
		return t.err
	}
	delete(t.behind, log)
	t.reached[log] = publish.PositionOf(log.Partition, next-1)
	if len(t.behind) == 0 {
		t.err = t.opts.CaughtUp(publish.Cursor{Positions: t.reached, Topics: t.topics})
	}
	return t.err
}

// isNew reports whether no record has been delivered yet.
func (t *target) isNew() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.delivered == 0
}

func (t *target) hasFailed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err != nil
}

// partition is the read position in one partition. Only one goroutine uses it.
type partition struct {
	b    *Bus
	log  publish.Log
	next int64 // offset of the next record
	from int64 // records below this offset go to Past

	counted bool // Reading.Begin was called for the records below from

	// whole means that the log starts at offset 0, and that a record was read at every offset
	// below next.
	whole bool
}

func (b *Bus) newPartition(log publish.Log, from int64) *partition {
	return &partition{b: b, log: log, next: from, whole: from == 0}
}

// read calls each with the records below the offset to, until ctx ends. It calls refused with the
// batches that it skips.
func (p *partition) read(ctx context.Context, to int64, each func(broker.Record) error, refused func(broker.Refused)) error {
	p.b.opts.Reading.Expect(max(0, to-p.next))
	return p.readExpected(ctx, to, each, refused)
}

// readExpected is like read, but for records that the counter already expects.
func (p *partition) readExpected(ctx context.Context, to int64, each func(broker.Record) error, refused func(broker.Refused)) error {
	if p.next >= to {
		return nil
	}
	counted := p.next
	count := func(next int64) {
		p.b.opts.Reading.Add(next - counted)
		counted = next
	}
	_, err := p.b.client.Read(ctx, p.log.Topic, p.log.Partition, p.next, to, func(r broker.Record) error {
		p.pass(r)
		count(p.next)
		return each(r)
	}, func(r broker.Refused) {
		p.skip(r)
		refused(r)
	})
	if err == nil {
		p.whole = p.whole && p.next == to
		p.next = to
		count(to)
	}
	return err
}

// catchUp delivers records until the partition is read to its end, and then calls caughtUp.
func (p *partition) catchUp(ctx context.Context, t *target) error {
	for {
		end, err := p.b.client.End(ctx, p.log.Topic, p.log.Partition)
		if err != nil {
			return err
		}
		if p.next >= end {
			return t.caughtUp(p.log, p.next)
		}
		err = p.read(ctx, end, func(r broker.Record) error { return p.deliver(t, r) }, func(r broker.Refused) { p.refuse(t, r) })
		if err != nil {
			return err
		}
	}
}

// readPast delivers the records before the start of the subscription.
func (p *partition) readPast(ctx context.Context, t *target) error {
	if p.counted {
		defer p.b.opts.Reading.End()
		p.counted = false
	}
	return p.read(ctx, p.from, func(r broker.Record) error { return p.deliver(t, r) }, func(r broker.Refused) { p.refuse(t, r) })
}

// follow delivers existing and new records until ctx ends or the partition cannot be read.
func (p *partition) follow(ctx context.Context, t *target) error {
	return p.b.client.Follow(ctx, p.log.Topic, p.log.Partition, p.next, func(r broker.Record) error {
		p.pass(r)
		return p.deliver(t, r)
	}, func(r broker.Refused) {
		p.skip(r)
		p.refuse(t, r)
	})
}

// skip moves past a batch that cannot be read.
func (p *partition) skip(r broker.Refused) {
	p.whole = false
	p.next = r.Last + 1
}

// refuse reports a batch that cannot be read.
func (p *partition) refuse(t *target, r broker.Refused) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.opts.Foreign != nil && r.First >= p.from {
		t.opts.Foreign(p.delivery(broker.Record{Offset: r.First}), refusal(r))
	}
}

// refusal returns the error for a batch that cannot be read.
func refusal(r broker.Refused) error {
	return fmt.Errorf("the records up to offset %d cannot be read: %w", r.Last, r.Err)
}

func (p *partition) pass(r broker.Record) {
	p.whole = p.whole && r.Offset == p.next
	p.next = r.Offset + 1
}

// readLasts delivers the last record of each key below an offset. A tombstone directly after a
// delete doesn't hide the delete.
func (p *partition) readLasts(ctx context.Context, until int64, t *target) error {
	lasts := map[string]int64{}
	p.b.opts.Reading.Expect(until + max(0, until-p.next)) // the partition is read twice
	err := p.b.newPartition(p.log, 0).readExpected(ctx, until, func(r broker.Record) error {
		if !p.b.isWanted(r) {
			return nil
		}
		if before, ok := lasts[string(r.Key)]; ok && before == r.Offset-1 && r.Value == nil {
			if _, ofDelete := binding.Removal(r.Headers); ofDelete {
				return nil
			}
		}
		lasts[string(r.Key)] = r.Offset
		return nil
	}, func(broker.Refused) {})
	if err != nil {
		return err
	}
	return p.readExpected(ctx, until, func(r broker.Record) error {
		p.whole = false // other records are skipped
		if offset, ok := lasts[string(r.Key)]; ok && offset == r.Offset {
			return p.deliver(t, r)
		}
		return nil
	}, func(r broker.Refused) { p.refuse(t, r) })
}

// isWanted reports whether a record belongs to the selected cluster.
func (b *Bus) isWanted(r broker.Record) bool { return bytes.HasPrefix(r.Key, b.prefix) }

// deliver passes one record to the target, unless yield or CaughtUp has failed. It returns their error,
// if any.
func (p *partition) deliver(t *target, r broker.Record) error {
	if !p.b.isWanted(r) {
		return nil
	}
	d := p.delivery(r)
	m, err := p.b.decode(&d, r)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.delivered++
	past := r.Offset < p.from
	switch {
	case t.err != nil: // possibly from another partition
	case err != nil && past:
	case err != nil:
		if t.opts.Foreign != nil {
			t.opts.Foreign(d, err)
		}
	case r.Value == nil && !m.Marker:
		if t.opts.Tombstone != nil {
			t.opts.Tombstone(m.Key, d)
		}
	case past:
		t.opts.Past(m, d)
	default:
		t.err = t.yield(m, d)
	}
	return t.err
}

func (p *partition) delivery(r broker.Record) publish.Delivery {
	return publish.Delivery{
		Subject: string(r.Key), Log: p.log, Position: publish.PositionOf(p.log.Partition, r.Offset), Stored: r.Time, Whole: p.whole,
	}
}

// decode returns the event in a record, or an error that says why the record is not an event. For a
// tombstone, decode returns a message with only the key.
func (b *Bus) decode(d *publish.Delivery, r broker.Record) (*event.Message, error) {
	m := &event.Message{}
	var err error
	if d.Cluster, m.Key, err = event.ParsePartitionKey(d.Subject); err != nil {
		m.Marker = true
		if d.Cluster, m.Key, err = event.ParseMarkerPartitionKey(d.Subject); err != nil {
			return nil, fmt.Errorf("the key %q does not name an object or a marker", d.Subject)
		}
	}
	if want := b.topicOf(m.Key); m.Key.Resource != "" && want != d.Log.Topic {
		d.Misplaced = true
		return nil, fmt.Errorf("the record is in topic %s but belongs in topic %q", d.Log.Topic, want)
	}
	if r.Value == nil && !m.Marker {
		return m, nil
	}
	decode := binding.Decode
	if m.Marker {
		decode = binding.DecodeControl
	}
	decoded, err := decode(r.Headers, r.Value)
	if err != nil {
		return nil, err
	}
	decoded.Key, decoded.Marker = m.Key, m.Marker
	return decoded, nil
}

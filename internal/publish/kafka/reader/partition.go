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

// target is who is given what the partitions hold, one at a time.
type target struct {
	mu    sync.Mutex
	opts  publish.SubscribeOptions
	yield func(*event.Message, publish.Delivery) error
	given int   // events and what else there was
	err   error // of yield
}

// isNew tells that nothing has been given yet.
func (t *target) isNew() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.given == 0
}

func (t *target) hasFailed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err != nil
}

// partition is how far one partition has been read. It is used by one goroutine.
type partition struct {
	b    *Bus
	log  publish.Log
	next int64 // the offset to go on at
	from int64 // what is before it is past

	// whole: every offset up to next was given, and the log began at 0.
	whole bool
}

func (b *Bus) newPartition(log publish.Log, from int64) *partition {
	return &partition{b: b, log: log, next: from, whole: from == 0}
}

// read gives what is there up to an offset, or until ctx ends.
func (p *partition) read(ctx context.Context, to int64, each func(broker.Record) error) error {
	if p.next >= to {
		return nil
	}
	_, err := p.b.client.Read(ctx, p.log.Topic, p.log.Partition, p.next, to, func(r broker.Record) error {
		p.pass(r)
		return each(r)
	})
	if err == nil {
		p.whole = p.whole && p.next == to
		p.next = to
	}
	return err
}

// follow gives what is there and what comes, until ctx ends.
func (p *partition) follow(ctx context.Context, each func(broker.Record) error) error {
	return p.b.client.Follow(ctx, p.log.Topic, p.log.Partition, p.next, func(r broker.Record) error {
		p.pass(r)
		return each(r)
	})
}

func (p *partition) pass(r broker.Record) {
	p.whole = p.whole && r.Offset == p.next
	p.next = r.Offset + 1
}

// readLasts gives the last record of each key up to an offset.
func (p *partition) readLasts(ctx context.Context, until int64, t *target) error {
	lasts := map[string]int64{}
	err := p.b.newPartition(p.log, 0).read(ctx, until, func(r broker.Record) error {
		if p.b.isWanted(r) {
			lasts[string(r.Key)] = r.Offset
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.read(ctx, until, func(r broker.Record) error {
		p.whole = false // what is not the last is left out
		if offset, ok := lasts[string(r.Key)]; ok && offset == r.Offset {
			return p.give(t, r)
		}
		return nil
	})
}

// isWanted tells whether a record is of the cluster that is read.
func (b *Bus) isWanted(r broker.Record) bool { return bytes.HasPrefix(r.Key, b.prefix) }

// give hands over one record. An error is that of yield.
func (p *partition) give(t *target, r broker.Record) error {
	if !p.b.isWanted(r) {
		return nil
	}
	d := publish.Delivery{
		Subject: string(r.Key), Log: p.log, Position: publish.PositionOf(p.log.Partition, r.Offset), Stored: r.Time, Whole: p.whole,
	}
	m, err := p.b.decode(&d, r)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.given++
	past := r.Offset < p.from
	switch {
	case t.err != nil: // another partition's
	case err != nil && past:
	case err != nil:
		if t.opts.Foreign != nil {
			t.opts.Foreign(d, err)
		}
	case r.Value == nil:
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

// decode tells what a record is, or why it is no event of ours. Of a tombstone the
// message is only its key.
func (b *Bus) decode(d *publish.Delivery, r broker.Record) (*event.Message, error) {
	m := &event.Message{}
	var err error
	if d.Cluster, m.Key, err = event.ParsePartitionKey(d.Subject); err != nil {
		m.Marker = true
		if d.Cluster, m.Key, err = event.ParseMarkerPartitionKey(d.Subject); err != nil {
			return nil, fmt.Errorf("the record's key is %q, which is neither an object's nor a marker's", d.Subject)
		}
	}
	if want := b.topicOf(m.Key); m.Key.Resource != "" && want != d.Log.Topic {
		return nil, fmt.Errorf("it is in topic %s and belongs to topic %s", d.Log.Topic, want)
	}
	if r.Value == nil && !m.Marker {
		return m, nil
	}
	decoded, err := binding.Decode(r.Headers, r.Value)
	if err != nil {
		return nil, err
	}
	decoded.Key, decoded.Marker = m.Key, m.Marker
	return decoded, nil
}

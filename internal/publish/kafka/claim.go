package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// LastClaim gives which cluster has the name that this bus was opened with, the zero
// value if the bus does not say.
func (b *Bus) LastClaim(context.Context) (event.Claim, error) {
	s, err := b.current()
	if s == nil {
		return event.Claim{}, fmt.Errorf("look up who has the name %s on the bus: %w", b.opts.Cluster, err)
	}
	return claimOf(s.marker(event.ClaimPartitionKey(b.opts.Cluster))), nil
}

// claimOf makes a claim of its entry, without what only the event has.
func claimOf(e entry) event.Claim {
	if e.Type != event.ClusterClaimed {
		return event.Claim{}
	}
	return event.Claim{UID: e.UID, Epoch: e.Epoch, Claimed: time.Unix(e.Time, 0).UTC(), Position: e.position()}
}

// claimEntry gives the entry of a claim's record, as entryOf does.
func (b *Bus) claimEntry(r broker.Record, topic string, partition int) (e entry, ok bool) {
	m, err := decode(r)
	var c event.Claim
	if err == nil {
		c, err = event.ClaimFrom(m)
	}
	if err != nil {
		b.log.Warn("a record on the bus is no event of ours", "topic", topic, "partition", partition, "offset", r.Offset, "err", err)
		return entry{}, false
	}
	return entry{
		UID: c.UID, Epoch: c.Epoch, Type: event.ClusterClaimed, ID: m.ID,
		Topic: topic, Partition: partition, Offset: r.Offset, Time: r.Time.Unix(),
	}, true
}

// admit asks whether this may take over, before it writes any record: to take over
// means to end whoever writes under the name. That nobody does is certain where it has
// made the checkpoint topic; a broker may only hear late of one that another made.
func (b *Bus) admit(ctx context.Context) error {
	if b.opts.Admit == nil {
		return nil
	}
	if err := b.opts.permitted(); err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, 3*b.opts.AckTimeout)
	_, created, err := b.ensure(asking, b.opts.CheckpointTopic)
	cancel()
	if err != nil {
		return err
	}
	var c event.Claim
	if !created {
		if c, err = b.recordedClaim(ctx); err != nil {
			return fmt.Errorf("look up who has the name %s on the bus: %w", b.opts.Cluster, err)
		}
	}
	return b.opts.Admit(c)
}

// recordedClaim reads the claim that the checkpoint topic tells of, if the bus still
// has it. One that is stored and not recorded yet is found after taking over.
func (b *Bus) recordedClaim(ctx context.Context) (event.Claim, error) {
	key := event.ClaimPartitionKey(b.opts.Cluster)
	offsets, err := b.client.Offsets(ctx, b.opts.CheckpointTopic)
	if err != nil {
		return event.Claim{}, err
	}
	var last entry // all records of one key are in one partition
	for p, end := range offsets.End {
		_, err := b.client.Read(ctx, b.opts.CheckpointTopic, p, 0, end, func(r broker.Record) error {
			var e entry
			if string(r.Key) == key && (r.Value == nil || parse(r.Value, &e)) {
				last = e
			}
			return nil
		})
		if err != nil {
			return event.Claim{}, err
		}
	}
	if last.Type != event.ClusterClaimed {
		return event.Claim{}, nil
	}
	r, found, err := b.client.ReadOne(ctx, last.Topic, last.Partition, last.Offset)
	if errors.Is(err, broker.ErrNoTopic) || err == nil && (!found || string(r.Key) != key) {
		return event.Claim{}, nil // it is lost
	}
	return claimOf(last), err
}

package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// LastClaim returns the owner of the cluster name on the bus, the zero value for none. It reads each
// claim once.
func (b *Bus) LastClaim(ctx context.Context) (event.Claim, error) {
	fail := func(err error) (event.Claim, error) {
		return event.Claim{}, fmt.Errorf("look up the owner of cluster name %s on the bus: %w", b.opts.Cluster, err)
	}
	s, err := b.current()
	if s == nil {
		return fail(err)
	}
	e := s.marker(event.ClaimPartitionKey(b.opts.Cluster))
	if e.Type != event.ClusterClaimed {
		return event.Claim{}, nil
	}
	b.mu.Lock()
	c := b.claimed
	b.mu.Unlock()
	if c.UID == e.UID && c.Position == e.Position() {
		return c, nil
	}
	c, found, err := b.claimAt(ctx, e)
	switch {
	case err != nil:
		return fail(err)
	case !found: // the event is lost
		return event.Claim{UID: e.UID, Epoch: e.Epoch, Claimed: time.Unix(e.Time, 0).UTC(), Position: e.Position()}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claimed = c
	return c, nil
}

// claimAt returns the claim that an entry describes, if the bus still holds the event. The entry
// has the owner; what the event adds counts only if it names the same one.
func (b *Bus) claimAt(ctx context.Context, e entry) (c event.Claim, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.AckTimeout)
	defer cancel()
	t, err := b.client.Topic(ctx, e.Topic)
	var r broker.Record
	if err == nil && e.Partition < t.Partitions {
		r, found, err = b.readOne(ctx, e.Topic, e.Partition, e.Offset)
	}
	if errors.Is(err, broker.ErrNoTopic) || err == nil && (!found || string(r.Key) != event.ClaimPartitionKey(b.opts.Cluster)) {
		return event.Claim{}, false, nil
	}
	if err != nil {
		return event.Claim{}, false, err
	}
	if m, invalid := decode(r); invalid == nil {
		c, _ = event.ClaimFrom(m) // the zero value for an invalid one
	}
	if c.UID != e.UID {
		c = event.Claim{Claimed: time.Unix(e.Time, 0).UTC()}
	}
	c.UID, c.Epoch, c.Position = e.UID, e.Epoch, e.Position()
	return c, true, nil
}

// admit checks, before any record is written, whether this process may take over: a
// takeover ends the current writer of the cluster name. If this process created the
// checkpoint topic, there is no owner and nothing to read. Otherwise it reads the claim,
// even from a topic that another process just created.
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
			return fmt.Errorf("look up the owner of cluster name %s on the bus: %w", b.opts.Cluster, err)
		}
	}
	return b.opts.Admit(c)
}

// recordedClaim returns the claim in the checkpoint topic, if the bus still holds the
// event. A claim that is stored and not recorded yet is found after the takeover.
func (b *Bus) recordedClaim(ctx context.Context) (event.Claim, error) {
	key := event.ClaimPartitionKey(b.opts.Cluster)
	offsets, err := b.client.Offsets(ctx, b.opts.CheckpointTopic)
	if err != nil {
		return event.Claim{}, err
	}
	var last entry // one partition holds all records of the key
	for p, end := range offsets.End {
		err := b.read(ctx, b.opts.CheckpointTopic, p, 0, end, func(r broker.Record) error {
			if string(r.Key) == key {
				if c := b.checkpoint(r, p); c.Kind != record.Ignored {
					last = c.Entry
				}
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
	c, _, err := b.claimAt(ctx, last)
	return c, err
}

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

// LastClaim returns the owner of the cluster name on the bus, the zero value for none.
func (b *Bus) LastClaim(context.Context) (event.Claim, error) {
	s, err := b.current()
	if s == nil {
		return event.Claim{}, fmt.Errorf("look up the owner of cluster name %s on the bus: %w", b.opts.Cluster, err)
	}
	return claimOf(s.marker(event.ClaimPartitionKey(b.opts.Cluster))), nil
}

// claimOf converts an entry to a claim. An entry from an earlier release has only the owner and the
// epoch.
func claimOf(e entry) event.Claim {
	if e.Type != event.ClusterClaimed {
		return event.Claim{}
	}
	c, err := event.ParseClaim([]byte(e.Claim))
	if err != nil || c.UID != e.UID {
		c = event.Claim{UID: e.UID, Claimed: time.Unix(e.Time, 0).UTC()}
	}
	c.Epoch, c.Position, c.IsRow = e.Epoch, e.Position(), !e.NoValue
	return c
}

// admit checks whether this process may take over. It does so before the process writes any record,
// because a takeover ends the current writer of the cluster name. If this process creates the
// checkpoint topic, the cluster name has no owner, and admit reads nothing. Otherwise, it reads the
// claim, even from a topic that another process has just created.
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

// recordedClaim returns the claim in the checkpoint topic. It returns the zero value if the event
// topic has lost the claim. If a claim is stored but not recorded yet, only the takeover finds it.
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
	isLost, err := b.hasLostClaim(ctx, keyedEntry{Key: key, Entry: last})
	if isLost || err != nil {
		return event.Claim{}, err
	}
	return claimOf(last), nil
}

// hasLostClaim reports whether the event topic has lost a recorded claim. Compaction can remove a
// claim without a value. Such a claim counts as lost only if the log ends at or before its offset.
func (b *Bus) hasLostClaim(ctx context.Context, c keyedEntry) (bool, error) {
	var r broker.Record
	var found bool
	end := int64(0)
	t, err := b.client.Topic(ctx, c.Topic)
	if err == nil && c.Partition < t.Partitions {
		r, found, err = b.readOne(ctx, c.Topic, c.Partition, c.Offset)
		if err == nil && !found && c.NoValue {
			end, err = b.client.End(ctx, c.Topic, c.Partition)
		}
	}
	if errors.Is(err, broker.ErrNoTopic) {
		return true, nil
	}
	return found && string(r.Key) != c.Key || !found && c.Offset >= end, err
}

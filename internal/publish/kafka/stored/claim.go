package stored

import (
	"context"
	"errors"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// ClaimOf converts an entry to a claim. An entry from an earlier release has only the owner and the
// epoch.
func ClaimOf(e record.Entry) event.Claim {
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

// Claim returns the claim in the checkpoint topic. It returns the zero value if the event topic has lost the
// claim. It does not find a claim that only the event topic has. The takeover finds such a claim.
func (s *Reader) Claim(ctx context.Context) (event.Claim, error) {
	key := event.ClaimPartitionKey(s.cluster)
	offsets, err := s.client.Offsets(ctx, s.checkpoint)
	if err != nil {
		return event.Claim{}, err
	}
	var last record.Entry // one partition holds all records of the key
	for p, end := range offsets.End {
		err := s.Read(ctx, s.checkpoint, p, 0, end, func(r broker.Record) error {
			if string(r.Key) == key {
				if c := s.parse(r, p); c.Kind != record.Ignored {
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
	isLost, err := s.hasLostClaim(ctx, takeover.Keyed{Key: key, Entry: last})
	if isLost || err != nil {
		return event.Claim{}, err
	}
	return ClaimOf(last), nil
}

// hasLostClaim reports whether the event topic has lost a recorded claim. Compaction might have
// removed the record of a claim without a value. If that record is missing, the claim counts as
// lost only if the log ends at or before the record's offset.
func (s *Reader) hasLostClaim(ctx context.Context, c takeover.Keyed) (bool, error) {
	var r broker.Record
	var found bool
	end := int64(0)
	t, err := s.client.Topic(ctx, c.Topic)
	if err == nil && c.Partition < t.Partitions {
		r, found, err = s.ReadOne(ctx, c.Topic, c.Partition, c.Offset)
		if err == nil && !found && c.NoValue {
			end, err = s.client.End(ctx, c.Topic, c.Partition)
		}
	}
	if errors.Is(err, broker.ErrNoTopic) {
		return true, nil
	}
	return found && string(r.Key) != c.Key || !found && c.Offset >= end, err
}

package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

// Offsets are the bounds of a topic's partitions: partition p's log holds what it holds
// from Start[p] on, and its next record gets End[p] (its high watermark: all below is
// on all in-sync replicas).
type Offsets struct{ Start, End []int64 }

// Offsets asks the leaders of all partitions. What is of the kind [Retry] is asked again
// until ctx ends; a topic that is gone is [ErrNoTopic].
func (c *Client) Offsets(ctx context.Context, topic string) (Offsets, error) {
	var o Offsets
	err := c.persist(ctx, topic, func() error {
		t, err := c.Topic(ctx, topic)
		if err != nil {
			return err
		}
		partitions := make([]int, t.Partitions)
		for p := range partitions {
			partitions[p] = p
		}
		o, err = c.bounds(ctx, topic, partitions...)
		return err
	})
	if err != nil {
		return Offsets{}, fmt.Errorf("ask for the offsets of topic %s: %w", topic, err)
	}
	return o, nil
}

// bounds asks once, for some partitions, in whose order the answer is.
func (c *Client) bounds(ctx context.Context, topic string, partitions ...int) (Offsets, error) {
	started := time.Now()
	o := Offsets{Start: make([]int64, len(partitions)), End: make([]int64, len(partitions))}
	place := make(map[int]int, len(partitions))
	requests := make([]kafka.OffsetRequest, 0, 2*len(partitions))
	for i, p := range partitions {
		place[p] = i
		requests = append(requests, kafka.FirstOffsetOf(p), kafka.LastOffsetOf(p))
	}
	res, err := c.kafka.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: requests}})
	if err != nil {
		return Offsets{}, c.denied(err, onTopic("Describe", topic))
	}
	answers := 0
	for _, p := range res.Topics[topic] {
		if p.Error != nil {
			c.transport.note(started, p.Error)
			return Offsets{}, fmt.Errorf("partition %d: %w", p.Partition, c.denied(p.Error, onTopic("Describe", topic)))
		}
		if i, asked := place[p.Partition]; asked && p.FirstOffset >= 0 && p.LastOffset >= 0 {
			o.Start[i], o.End[i] = p.FirstOffset, p.LastOffset
			answers++
		}
	}
	if answers != len(partitions) {
		return Offsets{}, errIncomplete
	}
	return o, nil
}

// OffsetsSince asks for the first offset of each partition whose record has that time or
// a later one: -1 where there is none. Errors are those of [Client.Offsets].
func (c *Client) OffsetsSince(ctx context.Context, topic string, at time.Time) ([]int64, error) {
	var offsets []int64
	err := c.persist(ctx, topic, func() error {
		t, err := c.Topic(ctx, topic)
		if err != nil {
			return err
		}
		offsets, err = c.since(ctx, topic, t.Partitions, at)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask for the offsets of topic %s at a time: %w", topic, err)
	}
	return offsets, nil
}

func (c *Client) since(ctx context.Context, topic string, partitions int, at time.Time) ([]int64, error) {
	started := time.Now()
	offsets, requests := make([]int64, partitions), make([]kafka.OffsetRequest, partitions)
	for p := range partitions {
		offsets[p], requests[p] = -1, kafka.TimeOffsetOf(p, at)
	}
	res, err := c.kafka.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: requests}})
	if err != nil {
		return nil, c.denied(err, onTopic("Describe", topic))
	}
	if len(res.Topics[topic]) != partitions {
		return nil, errIncomplete
	}
	for _, p := range res.Topics[topic] {
		if p.Error != nil {
			c.transport.note(started, p.Error)
			return nil, fmt.Errorf("partition %d: %w", p.Partition, c.denied(p.Error, onTopic("Describe", topic)))
		}
		if p.Partition < 0 || p.Partition >= partitions {
			return nil, errIncomplete
		}
		for offset := range p.Offsets { // one, or none where no record is so late
			offsets[p.Partition] = offset
		}
	}
	return offsets, nil
}

// errIncomplete is an answer that lacks what was asked for.
var errIncomplete = fmt.Errorf("the answer is incomplete: %w", kafka.Unknown)

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

// errIncomplete is an answer that lacks what was asked for.
var errIncomplete = fmt.Errorf("the answer is incomplete: %w", kafka.Unknown)

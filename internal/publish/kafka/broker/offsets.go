package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/advice"
)

// Offsets are the bounds of a topic's partitions. Start[p] is the first offset of partition p.
// End[p] is its high watermark, which is the offset of the next record. Every record before
// the high watermark is on all in-sync replicas.
type Offsets struct{ Start, End []int64 }

// Offsets requests the bounds of all partitions from their leaders. It retries errors of the
// kind [failure.Retry] until ctx ends. If the topic does not exist, the error is [ErrNoTopic].
func (c *Client) Offsets(ctx context.Context, topic string) (Offsets, error) {
	var o Offsets
	err := c.persist(ctx, topic, func() (err error) {
		_, o, err = c.allBounds(ctx, topic)
		return err
	})
	if err != nil {
		return Offsets{}, fmt.Errorf("request the offsets of topic %s: %w", topic, err)
	}
	return o, nil
}

// End returns the offset of a partition's next record. It returns the same errors as
// [Client.Offsets].
func (c *Client) End(ctx context.Context, topic string, partition int) (int64, error) {
	var o Offsets
	err := c.persist(ctx, topic, func() (err error) {
		o, err = c.bounds(ctx, topic, partition)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("request the end offset of topic %s, partition %d: %w", topic, partition, err)
	}
	return o.End[0], nil
}

// Committed returns the offset that a consumer group has committed in a partition, or -1 if it has committed
// none. The committed offset is that of the next record that the group reads. Committed returns the same errors
// as [Client.Offsets].
func (c *Client) Committed(ctx context.Context, group, topic string, partition int) (int64, error) {
	next := int64(-1)
	err := c.persist(ctx, topic, func() error {
		res, err := c.kafka.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {partition}}})
		if err == nil {
			err = res.Error
		}
		if err != nil {
			return c.advisor.Denied(err, advice.OnGroup("Describe", group))
		}
		if len(res.Topics[topic]) != 1 {
			return errIncomplete
		}
		next = res.Topics[topic][0].CommittedOffset
		return c.advisor.Denied(res.Topics[topic][0].Error, advice.OnTopic("Describe", topic))
	})
	if err != nil {
		return -1, fmt.Errorf("request the offset of group %s: %w", group, err)
	}
	return next, nil
}

// Reach sends a request to the leader of each partition and returns nil as soon as one leader
// responds. It does not wait for the other partitions, which might have no leader or a leader that
// hangs. It retries errors of the kind [failure.Retry] until ctx ends. If the topic does not exist,
// the error is [ErrNoTopic].
func (c *Client) Reach(ctx context.Context, topic string) error {
	err := c.persist(ctx, topic, func() error {
		t, err := c.Topic(ctx, topic)
		if err != nil {
			return err
		}
		var asked sync.WaitGroup
		defer asked.Wait()
		asking, cancel := context.WithCancel(ctx)
		defer cancel()
		answers := make(chan error, t.Partitions)
		for p := range t.Partitions {
			asked.Go(func() {
				_, err := c.bounds(asking, topic, p)
				answers <- err
			})
		}
		for range t.Partitions {
			if err = <-answers; err == nil {
				return nil
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("reach topic %s: %w", topic, err)
	}
	return nil
}

// allBounds makes one attempt to look up a topic and to read the bounds of all of its partitions.
func (c *Client) allBounds(ctx context.Context, topic string) (t Topic, o Offsets, err error) {
	if t, err = c.Topic(ctx, topic); err != nil {
		return t, o, err
	}
	partitions := make([]int, t.Partitions)
	for p := range partitions {
		partitions[p] = p
	}
	o, err = c.bounds(ctx, topic, partitions...)
	return t, o, err
}

// bounds makes one attempt to read the bounds of some partitions. The result has the order of
// partitions.
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
		return Offsets{}, c.advisor.Denied(err, advice.OnTopic("Describe", topic))
	}
	answers := 0
	for _, p := range res.Topics[topic] {
		if p.Error != nil {
			c.transport.note(started, p.Error)
			return Offsets{}, fmt.Errorf("partition %d: %w", p.Partition, c.advisor.Denied(p.Error, advice.OnTopic("Describe", topic)))
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

// OffsetsSince returns, for each partition, the offset of the first record whose timestamp is
// not before the given time. The offset is -1 if every record is older. OffsetsSince returns
// the same errors as [Client.Offsets].
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
		return nil, fmt.Errorf("request the offsets of topic %s for a time: %w", topic, err)
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
		return nil, c.advisor.Denied(err, advice.OnTopic("Describe", topic))
	}
	if len(res.Topics[topic]) != partitions {
		return nil, errIncomplete
	}
	for _, p := range res.Topics[topic] {
		if p.Error != nil {
			c.transport.note(started, p.Error)
			return nil, fmt.Errorf("partition %d: %w", p.Partition, c.advisor.Denied(p.Error, advice.OnTopic("Describe", topic)))
		}
		if p.Partition < 0 || p.Partition >= partitions {
			return nil, errIncomplete
		}
		for offset := range p.Offsets { // one offset, or none if every record is older
			offsets[p.Partition] = offset
		}
	}
	return offsets, nil
}

// errIncomplete means that a response lacks requested data.
var errIncomplete = fmt.Errorf("the response is incomplete: %w", kafka.Unknown)

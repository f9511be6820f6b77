package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
)

// kafkaCluster is a cluster of real brokers. The node IDs begin with 1.
type kafkaCluster struct{ brokers []*kafkabroker.Broker }

func (s *stage) startKafka(ctx context.Context, nodes int) (*kafkaCluster, error) {
	s.say("starting Kafka, %d brokers", nodes)
	c := &kafkaCluster{}
	for node := 1; node <= nodes; node++ {
		opts := kafkabroker.Options{Log: s.out, Properties: map[string]string{"broker.session.timeout.ms": "9000"}} // Kafka's default
		if node > 1 {
			opts.Join, opts.NodeID = c.brokers[0], node
		}
		b, err := kafkabroker.Start(ctx, opts)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.brokers = append(c.brokers, b)
	}
	return c, nil
}

// close stops the brokers. It stops the controller last.
func (c *kafkaCluster) close() (err error) {
	for i := 0; c != nil && i < len(c.brokers); i++ {
		err = errors.Join(err, c.brokers[len(c.brokers)-1-i].Close())
	}
	return err
}

func (c *kafkaCluster) addresses() (all []string) {
	for _, b := range c.brokers {
		all = append(all, b.Addr())
	}
	return all
}

// kafkaTopic is the topic of one forwarder.
type kafkaTopic struct {
	*kafkaCluster
	name string
}

func (t *kafkaTopic) env() []string {
	return []string{"KUBERELAY_SINK=kafka", "KUBERELAY_KAFKA_BROKERS=" + strings.Join(t.addresses(), ","),
		"KUBERELAY_KAFKA_TOPIC=" + t.name, "KUBERELAY_KAFKA_TRANSACTIONAL_ID=" + t.name}
}

func (t *kafkaTopic) subscribe(ctx context.Context, fail context.CancelCauseFunc) (*subscriber, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(t.addresses()[0]), kgo.ConsumeTopics(t.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(time.Second), kgo.DisableFetchSessions(), kgo.UnknownTopicRetries(-1))
	if err != nil {
		return nil, err
	}
	s := &subscriber{partition: map[object]int{}}
	go func() {
		defer client.Close()
		for ctx.Err() == nil {
			records := client.PollFetches(ctx).Records()
			at := time.Now()
			for _, r := range records {
				if err := s.take(r, at); err != nil {
					fail(fmt.Errorf("record %d of partition %d: %w", r.Offset, r.Partition, err))
				}
			}
		}
	}()
	return s, nil
}

// take reads a record with the key <cluster>/<group>/<resource>/<namespace>/<name>.
func (s *subscriber) take(r *kgo.Record, at time.Time) error {
	key := strings.Split(string(r.Key), "/")
	i := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == "ce_resourceversion" })
	if len(key) != 5 || key[3] != liveNamespace || i < 0 {
		return nil
	}
	version, err := strconv.ParseUint(string(r.Headers[i].Value), 10, 64)
	o := object{key[2], key[3], key[4]}
	s.add(o, state{version, at})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partition[o] = int(r.Partition)
	return err
}

func (s *subscriber) partitionOf(o object) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.partition[o]
}

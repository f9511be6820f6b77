package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/kafkabroker"
)

// kafkaPartitions are as many as the forwarder makes by default.
const kafkaPartitions = 3

// sampleKafka: all runs have one broker, which has compiled its code by the second, and
// topics of their own.
func (s *stage) sampleKafka(ctx context.Context, n int) (sample, error) {
	if s.kafka == nil {
		s.say("starting a Kafka broker")
		broker, err := kafkabroker.Start(ctx, kafkabroker.Options{Dir: filepath.Join(s.dir, "kafka"), Log: s.out})
		if err != nil {
			return sample{}, err
		}
		s.kafka = broker
	}
	s.topics++
	topic := fmt.Sprintf("bench-%d", s.topics)
	client := &kafka.Client{Addr: kafka.TCP(s.kafka.Addr()), Transport: &kafka.Transport{}}
	stored := func(ctx context.Context) (int, error) { return storedIn(ctx, client, topic) }
	return s.sampleForwarder(ctx, n, stored, "KUBERELAY_SINK=kafka", "KUBERELAY_KAFKA_BROKERS="+s.kafka.Addr(), "KUBERELAY_KAFKA_TOPIC="+topic,
		"KUBERELAY_KAFKA_TRANSACTIONAL_ID="+topic)
}

// storedIn is how many records a topic has got.
func storedIn(ctx context.Context, client *kafka.Client, topic string) (int, error) {
	request := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{}}
	for p := range kafkaPartitions {
		request.Topics[topic] = append(request.Topics[topic], kafka.LastOffsetOf(p))
	}
	response, err := client.ListOffsets(ctx, request)
	if err != nil {
		return 0, notYet(err)
	}
	sum := int64(0)
	for _, p := range response.Topics[topic] {
		if p.Error != nil {
			return 0, notYet(p.Error)
		}
		sum += p.LastOffset
	}
	return int(sum), nil
}

// notYet is nil for what passes when the topic has been created.
func notYet(err error) error {
	var answer kafka.Error
	if errors.As(err, &answer) && answer.Temporary() {
		return nil
	}
	return err
}

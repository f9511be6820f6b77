package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/kafkabroker"
)

// kafkaBus is a real Apache Kafka broker, started for the demo.
type kafkaBus struct{ broker *kafkabroker.Broker }

const topic = "kuberelay"

func (b *kafkaBus) start(ctx context.Context, s *stage) (err error) {
	s.console.say("start a real Apache Kafka broker")
	s.console.note("the first time it is fetched from Maven Central, which needs Java and Maven; they are installed where that may be done")
	start := time.Now()
	b.broker, err = kafkabroker.Start(ctx, kafkabroker.Options{Dir: filepath.Join(s.dir, "kafka"), Log: s.console.notes()})
	if err != nil {
		return err
	}
	s.console.done("ready after %s at %s", since(start), b.broker.Addr())
	return nil
}

func (b *kafkaBus) stop() error {
	if b.broker == nil {
		return nil
	}
	return b.broker.Close()
}

func (b *kafkaBus) settings() []string {
	return []string{"KUBERELAY_SINK=kafka", "KUBERELAY_KAFKA_BROKERS=" + b.broker.Addr()}
}

func (b *kafkaBus) reading() []string { return b.settings() }

func (b *kafkaBus) words() words { return words{subject: "key"} }

func (b *kafkaBus) byHand(bin string) string {
	return fmt.Sprintf(`  # the state of every object, and then what changes; or the whole events; or what each update changes; or with kcat
  export KUBERELAY_SINK=kafka KUBERELAY_KAFKA_BROKERS=%[1]s
  %[2]s tail --last
  %[2]s tail --from-start --resource=pods --output=json
  %[2]s tail --diff --resource=deployments
  kcat -b %[1]s -t %[3]s -f '%%p:%%o %%k\n'`, b.broker.Addr(), bin, topic)
}

// subscribe reads each partition by itself: only one object's events have an order.
func (b *kafkaBus) subscribe(ctx context.Context, take func(event, error)) (closer func(), err error) {
	partitions, err := b.partitions(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var reading sync.WaitGroup
	for _, p := range partitions {
		r := kafka.NewReader(kafka.ReaderConfig{
			Brokers: []string{b.broker.Addr()}, Topic: topic, Partition: p.ID, MinBytes: 1, MaxBytes: 10 << 20, MaxWait: heartbeat,
		})
		reading.Go(func() {
			defer func() { _ = r.Close() }() // it was only read
			for {
				m, err := r.ReadMessage(ctx)
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					take(event{}, err)
					return
				}
				take(readRecord(m))
			}
		})
	}
	return func() { cancel(); reading.Wait() }, nil
}

var errNoTopic = errors.New("the topic does not exist")

// partitions waits for the topic.
func (b *kafkaBus) partitions(ctx context.Context) ([]kafka.Partition, error) {
	missing := func(err error) bool { return errors.Is(err, errNoTopic) }
	return retry(ctx, missing, func() ([]kafka.Partition, error) {
		client := &kafka.Client{Addr: kafka.TCP(b.broker.Addr()), Transport: &kafka.Transport{}} // one of its own asks anew
		found, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		if err == nil && (found.Topics[0].Error != nil || len(found.Topics[0].Partitions) == 0) {
			err = fmt.Errorf("%w: %w", errNoTopic, found.Topics[0].Error)
		}
		if err != nil {
			return nil, err
		}
		return found.Topics[0].Partitions, nil
	})
}

func readRecord(m kafka.Message) (event, error) {
	return readEvent(string(m.Key), m.Value, func(attribute string) (string, error) {
		for _, h := range m.Headers {
			if strings.EqualFold(h.Key, "ce_"+attribute) {
				return string(h.Value), nil
			}
		}
		return "", nil
	})
}

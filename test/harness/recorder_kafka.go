package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// KafkaRecorder reads every record of a topic with franz-go, which the forwarder doesn't use. If the
// topic is deleted and recreated, the recorder reads the new topic from its start.
type KafkaRecorder struct {
	client *kgo.Client // sends requests
	topic  string
	opts   []kgo.Opt
	cancel context.CancelFunc
	done   chan struct{}

	consumer *kgo.Client // reads the current topic; nil before the first topic; only run uses it

	mu      sync.Mutex
	lives   int
	back    []int64  // the offset to resume at, by partition; see Rewind
	id      [16]byte // the current topic's id
	next    []int64  // the offset after the last record read, by partition
	all     []Received
	missed  bool
	foreign error
	lenient bool // accept records that aren't CloudEvents
}

// RecordKafka starts reading a topic, which may not exist yet. Close stops the recorder. The address
// can list several brokers, separated by commas.
func RecordKafka(address, topic string) (*KafkaRecorder, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(address, ",")...), kgo.FetchMaxWait(100 * time.Millisecond), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return interval }), kgo.RequestTimeoutOverhead(requestTimeout),
		kgo.DialTimeout(requestTimeout), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableFetchSessions(),
		kgo.RequestRetries(0), // a retry would be a data race in kgo, because the goroutine of the first attempt still reads the request
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", topic, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &KafkaRecorder{client: client, topic: topic, opts: opts, cancel: cancel, done: make(chan struct{})}
	go r.run(ctx)
	return r, nil
}

// TolerateInvalid implements [Recorder].
func (r *KafkaRecorder) TolerateInvalid() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lenient = true
}

// Close implements [Recorder].
func (r *KafkaRecorder) Close() {
	r.cancel()
	<-r.done
	r.client.Close()
}

func (r *KafkaRecorder) run(ctx context.Context) {
	defer close(r.done)
	defer func() {
		if r.consumer != nil {
			r.consumer.Close()
		}
	}()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		r.rewind()
		r.renew(ctx)
		if r.consumer != nil {
			r.step(ctx)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// ErrNoTopic means that the topic doesn't exist.
var ErrNoTopic = errors.New("there is no such topic")

// Partitions returns the number of partitions of a topic.
func (r *KafkaRecorder) Partitions(ctx context.Context, topic string) (int, error) {
	_, partitions, err := r.look(ctx, topic)
	return partitions, err
}

// look returns the id of a topic and the number of its partitions.
func (r *KafkaRecorder) look(ctx context.Context, name string) (id [16]byte, partitions int, err error) {
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(name)
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, r.client)
	if err != nil {
		return id, 0, err
	}
	if len(response.Topics) != 1 {
		return id, 0, ErrNoTopic
	}
	t := response.Topics[0]
	if err := kerr.ErrorForCode(t.ErrorCode); errors.Is(err, kerr.UnknownTopicOrPartition) {
		return id, 0, ErrNoTopic
	} else if err != nil {
		return id, 0, err
	}
	return t.TopicID, len(t.Partitions), nil
}

// renew starts reading the topic if the topic was created or recreated, or if it has more
// partitions.
func (r *KafkaRecorder) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	id, partitions, err := r.look(ctx, r.topic)
	if err != nil || r.consumer != nil && id == r.id && partitions == len(r.next) {
		return
	}
	next := make([]int64, partitions)
	if r.consumer != nil && id == r.id {
		copy(next, r.next) // the topic has more partitions
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.consumer == nil || id != r.id {
		r.lives++
	}
	r.consume(next)
	r.id = id
}

// consume starts reading at the given offsets. The caller must hold the lock.
func (r *KafkaRecorder) consume(next []int64) {
	from := map[int32]kgo.Offset{}
	for p, offset := range next {
		from[int32(p)] = kgo.NewOffset().At(offset)
	}
	if r.consumer != nil {
		r.consumer.Close()
	}
	var err error
	r.consumer, err = kgo.NewClient(append(r.opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: from}))...)
	r.foreign = errors.Join(r.foreign, err)
	r.next = next
}

// Rewind tells the recorder that the broker lost the ends of the partitions. The broker must not be
// running. The argument ends contains the new ends. Records that the recorder reads from now on have
// the returned life.
func (r *KafkaRecorder) Rewind(ctx context.Context, ends []int64, limit time.Duration) (life int, err error) {
	r.mu.Lock()
	r.back = ends
	r.mu.Unlock()
	err = poll.Until(ctx, limit, "the recorder knows what was lost", func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.back != nil {
			return errors.New("the recorder has not resumed")
		}
		life = r.lives
		return nil
	})
	return life, err
}

func (r *KafkaRecorder) rewind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.back == nil {
		return
	}
	r.lives++
	r.consume(r.back)
	r.back = nil
}

// step reads the available records.
func (r *KafkaRecorder) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	fetches := r.consumer.PollFetches(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	fetches.EachRecord(func(record *kgo.Record) {
		p := int(record.Partition)
		if record.Offset < r.next[p] {
			return
		}
		received, err := newRecord(record, r.lives)
		if received.Invalid = err; r.lenient {
			err = nil
		}
		r.missed = r.missed || record.Offset != r.next[p]
		r.next[p] = record.Offset + 1
		r.all = append(r.all, received)
		if r.foreign == nil {
			r.foreign = err
		}
	})
}

func newRecord(record *kgo.Record, life int) (Received, error) {
	r := Received{
		Subject: string(record.Key), Place: Place{record.Topic, life, int(record.Partition), uint64(record.Offset)}, Body: record.Value,
		Producer: Producer{record.ProducerID + 1, int64(record.ProducerEpoch)},
	}
	if r.Producer.ID == 0 {
		r.Producer = Producer{}
	}
	if r.Body == nil && len(record.Headers) == 0 {
		return r, nil
	}
	var headers []header
	for _, h := range record.Headers {
		headers = append(headers, header{h.Key, string(h.Value)})
	}
	err := r.read(headers, "ce_", func(value string) (string, error) { return value, nil })
	return r, err
}

// offsets returns the first or the last offset of each partition, according to the special
// timestamp.
func (r *KafkaRecorder) offsets(ctx context.Context, timestamp int64, partitions int) ([]int64, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = r.topic
	for p := range partitions {
		of := kmsg.NewListOffsetsRequestTopicPartition()
		of.Partition, of.Timestamp = int32(p), timestamp
		topic.Partitions = append(topic.Partitions, of)
	}
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, r.client)
	if err != nil {
		return nil, err
	}
	offsets := make([]int64, partitions)
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, err
			}
			offsets[p.Partition] = p.Offset
		}
	}
	return offsets, nil
}

// Special timestamps of ListOffsets.
const (
	earliest = -2
	latest   = -1
)

// Ends returns the offset after the last record of each partition.
func (r *KafkaRecorder) Ends(ctx context.Context) (id [16]byte, ends []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	id, partitions, err := r.look(ctx, r.topic)
	if err != nil {
		return id, nil, err
	}
	ends, err = r.offsets(ctx, latest, partitions)
	return id, ends, err
}

// Stored implements [Recorder].
func (r *KafkaRecorder) Stored(ctx context.Context) (uint64, error) {
	_, ends, err := r.Ends(ctx)
	sum := uint64(0)
	for _, end := range ends {
		sum += uint64(end)
	}
	return sum, err
}

// CatchUp implements [Recorder].
func (r *KafkaRecorder) CatchUp(ctx context.Context, limit time.Duration) error {
	return poll.Until(ctx, limit, "everything in the topic has been read", func(ctx context.Context) error {
		id, ends, err := r.Ends(ctx)
		if err != nil {
			return err
		}
		asking, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		starts, err := r.offsets(asking, earliest, len(ends))
		if err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if id != r.id || len(r.next) != len(ends) {
			return errors.New("the topic was recreated, and the recorder has not read the new one")
		}
		for p, end := range ends {
			if max(r.next[p], starts[p]) < end {
				return fmt.Errorf("read offset %d of %d in partition %d", r.next[p], end, p)
			}
		}
		return nil
	})
}

// All implements [Recorder].
func (r *KafkaRecorder) All() (all []Received, missed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.foreign != nil {
		return nil, false, r.foreign
	}
	return append([]Received(nil), r.all...), r.missed, nil
}

// Do sends a request on the recorder's connection.
func (r *KafkaRecorder) Do(ctx context.Context, request kmsg.Request) (kmsg.Response, error) {
	return r.client.Request(ctx, request)
}

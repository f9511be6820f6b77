package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	_ "github.com/segmentio/kafka-go/protocol/rawproduce" // registers the request

	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// NoProducer is what a new writer has in the place of a former producer.
var NoProducer = recordbatch.Producer{ID: -1, Epoch: -1}

// transactionTimeout is never used up, as there are no transactions; brokers refuse one
// over their transaction.max.timeout.ms, by default 15 minutes.
const transactionTimeout = time.Minute

// InitProducerID takes the transactional id, with a new epoch. Previous is [NoProducer]
// for a new writer, who takes it from whoever has it. One who renews it (KIP-360) gives
// what it has, and is refused with the kind [Fenced] if another has taken it.
//
// An answer that does not come, and all that is of the kind [Retry], is asked for again
// until ctx ends: with previous, a broker that has done it already gives the same again.
//
// The older epoch is refused in a partition only once the new one has written there.
func (c *Client) InitProducerID(ctx context.Context, transactionalID string, previous recordbatch.Producer) (recordbatch.Producer, error) {
	var p recordbatch.Producer
	err := c.persist(ctx, "", func() error {
		started := time.Now()
		res, err := c.kafka.InitProducerID(ctx, &kafka.InitProducerIDRequest{
			TransactionalID:      transactionalID,
			TransactionTimeoutMs: int(transactionTimeout.Milliseconds()),
			ProducerID:           int(previous.ID),
			ProducerEpoch:        int(previous.Epoch),
		})
		if err == nil {
			err = res.Error
		}
		if err != nil {
			c.transport.note(started, err)
			return err
		}
		p = recordbatch.Producer{ID: int64(res.Producer.ProducerID), Epoch: int16(res.Producer.ProducerEpoch)}
		return nil
	})
	if err != nil {
		return NoProducer, fmt.Errorf("take the transactional id %s: %w", transactionalID, c.denied(err, onTransactionalID(transactionalID), idempotentWrite))
	}
	return p, nil
}

// Produce sends one encoded batch to the partition's leader, once, and waits for the
// acknowledgement of all in-sync replicas, [Options.RequestTimeout] at most. A batch
// that the partition already has, of the producer's last five, is acknowledged with the
// offset that it has there.
//
// On an error, see [KindOf], baseOffset is -1. The batch may change when Produce has
// returned, whatever it has returned.
func (c *Client) Produce(ctx context.Context, topic string, partition int, batch []byte) (baseOffset int64, err error) {
	started := time.Now()
	records := &recordSet{set: recordbatch.RawRecordSet(batch)}
	defer records.withdraw()
	res, err := c.kafka.RawProduce(ctx, &kafka.RawProduceRequest{
		Topic:        topic,
		Partition:    partition,
		RequiredAcks: kafka.RequireAll,
		RawRecords:   protocol.RawRecordSet{Reader: records},
	})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		c.transport.note(started, err)
		err = c.denied(c.unrouted(ctx, err, topic, "Write"), onTopic("Write", topic), idempotentWrite)
		return -1, fmt.Errorf("produce to topic %s, partition %d: %w", topic, partition, err)
	}
	return res.BaseOffset, nil
}

// recordSet keeps kafka-go from reading a batch after Produce has returned. It encodes
// a request on the goroutine of the connection, which does not end with the context.
type recordSet struct {
	mu        sync.Mutex
	set       protocol.RawRecordSet
	withdrawn bool
}

var _ io.WriterTo = (*recordSet)(nil)

var errWithdrawn = errors.New("nobody waits for the answer any more")

// WriteTo is what kafka-go reads the batch by, into memory of its own.
func (r *recordSet) WriteTo(w io.Writer) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.withdrawn {
		return 0, errWithdrawn
	}
	return r.set.WriteTo(w)
}

// Read is there for io.Reader's sake; io.Copy prefers WriteTo.
func (r *recordSet) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

func (r *recordSet) withdraw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.withdrawn = true
}

package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	_ "github.com/segmentio/kafka-go/protocol/rawproduce" // registers the request

	"github.com/kuberelay/kuberelay/internal/publish/kafka/advice"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// NoProducer is the value of previous that a new writer passes to [Client.InitProducerID].
var NoProducer = recordbatch.Producer{ID: -1, Epoch: -1}

// transactionTimeout is required by the protocol. It has no effect, because the package does not
// use transactions. Brokers reject a value over their transaction.max.timeout.ms, by default 15
// minutes.
const transactionTimeout = time.Minute

// InitProducerID takes the transactional ID with a new epoch. A new writer passes [NoProducer]
// as previous and takes the ID from any current writer. To renew an ID (KIP-360), pass the
// current producer. If another writer has taken the ID since then, the error is of the kind
// [failure.Fenced].
//
// InitProducerID retries lost responses and errors of the kind [failure.Retry] until ctx ends. If
// previous is a producer, a broker returns the same result to each retry.
//
// Brokers reject the older epoch in a partition only after the new epoch has written to that
// partition.
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
		return NoProducer, fmt.Errorf("take the transactional ID %s: %w", transactionalID, c.advisor.Denied(err, advice.OnTransactionalID(transactionalID), advice.OnCluster("IdempotentWrite")))
	}
	return p, nil
}

// Produce sends one encoded batch to the leader of the partition. It makes one attempt, and
// waits at most [Options.RequestTimeout] for the acknowledgement of all in-sync replicas. If
// the batch is one of the last five that the producer stored in the partition, the broker
// acknowledges the batch with its existing offset.
//
// On an error, baseOffset is -1, and [failure.KindOf] classifies the error. The caller may change batch
// after Produce has returned, even after an error.
func (c *Client) Produce(ctx context.Context, topic string, partition int, batch []byte) (baseOffset int64, err error) {
	started := time.Now()
	records := &recordSet{batch: batch}
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
		err = c.advisor.Denied(c.unrouted(ctx, err, topic, "Write"), advice.OnTopic("Write", topic), advice.OnCluster("IdempotentWrite"))
		return -1, fmt.Errorf("produce to topic %s, partition %d: %w", topic, partition, err)
	}
	return res.BaseOffset, nil
}

// recordSet is a batch in the form that kafka-go's RawProduceRequest takes: its size in four bytes, then
// the batch. It prevents kafka-go from reading the batch after Produce has returned. kafka-go encodes a
// request on the connection's goroutine, which continues after the context ends.
type recordSet struct {
	mu        sync.Mutex
	batch     []byte
	withdrawn bool
}

var _ io.WriterTo = (*recordSet)(nil)

var errWithdrawn = errors.New("the request was abandoned")

// WriteTo writes the whole set to kafka-go's buffer.
func (r *recordSet) WriteTo(w io.Writer) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.withdrawn {
		return 0, errWithdrawn
	}
	n, err := w.Write(binary.BigEndian.AppendUint32(nil, uint32(len(r.batch))))
	if err != nil {
		return int64(n), err
	}
	m, err := w.Write(r.batch)
	return int64(n + m), err
}

// Read makes recordSet an io.Reader. io.Copy uses WriteTo.
func (r *recordSet) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

func (r *recordSet) withdraw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.withdrawn = true
}

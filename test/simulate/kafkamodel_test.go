package simulate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

func TestMain(m *testing.M) { os.Exit(kafkabrokertest.Run(m)) }

// TestModelOfKafka performs the same random operations on the model and on a real broker, and
// compares every result. Meanwhile the broker restarts, is killed, and returns with an earlier copy
// of its disk.
func TestModelOfKafka(t *testing.T) {
	b := kafkabrokertest.Start(t, kafkabroker.Options{})
	c := &kafkaComparison{t: t, rng: rand.New(rand.NewPCG(1, 1)), topic: kafkabrokertest.Topic(t, b, "model", 1, nil), last: map[int]produced{}}
	var err error
	c.client, err = broker.New(broker.Options{Addrs: []string{b.Addr()}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.client.Close() })
	c.newEpoch()
	run := func() {
		for range 200 {
			c.one()
		}
	}
	run()
	b.Stop()
	b.Start()
	run()
	b.Stop()
	disk := filepath.Join(t.TempDir(), "disk")
	if err := b.CopyData(disk); err != nil {
		t.Fatal(err)
	}
	producers, last := c.producers, maps.Clone(c.last)
	records := len(c.model.records)
	b.Start()
	run()
	b.Kill()
	b.Start()
	run()
	b.Stop()
	b.Forget()
	if err := b.PutBackData(disk); err != nil {
		t.Fatal(err)
	}
	b.Start()
	c.model.lose(records)
	c.producers, c.last = producers, last
	run()
}

// kafkaComparison is a partition and its model.
type kafkaComparison struct {
	t         *testing.T
	rng       *rand.Rand
	client    *broker.Client
	topic     string
	model     topicLog[string]
	producers []recordbatch.Producer
	last      map[int]produced // the last accepted batch of each producer
	number    int
}

type produced struct {
	sequence int
	values   []string
}

// within returns a context for an operation that may wait for the broker to start.
func (c *kafkaComparison) within() context.Context {
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Minute)
	c.t.Cleanup(cancel)
	return ctx
}

// again repeats a request until the broker responds.
func (c *kafkaComparison) again(f func() error) error {
	for ctx := c.within(); ; {
		err := f()
		if failure.KindOf(err) != failure.Retry || ctx.Err() != nil {
			return err
		}
	}
}

func (c *kafkaComparison) newEpoch() {
	c.t.Helper()
	err := c.again(func() error {
		p, err := c.client.InitProducerID(c.within(), "model", broker.NoProducer)
		if err == nil {
			c.producers = append(c.producers[:len(c.producers):len(c.producers)], p)
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// one performs one random operation on the broker and on the model.
func (c *kafkaComparison) one() {
	c.t.Helper()
	c.number++
	switch c.rng.IntN(20) {
	case 0:
		c.newEpoch()
	case 1, 2, 3, 4, 5:
		c.read(c.rng.IntN(len(c.model.records) + 1))
	default:
		c.produce()
	}
}

// produce sends the next batch of a producer, its last batch again, or a batch that leaves a gap
// after the last one.
func (c *kafkaComparison) produce() {
	c.t.Helper()
	by := max(0, len(c.producers)-1-c.rng.IntN(8)/6)
	p, last, again := c.producers[by], c.last[by], false
	sequence := last.sequence + len(last.values)
	values := []string{fmt.Sprint(c.number)}
	if c.rng.IntN(2) == 0 {
		values = append(values, fmt.Sprint(c.number, "+"))
	}
	switch c.rng.IntN(6) {
	case 0:
		sequence += 1 + c.rng.IntN(2)
	case 1:
		if again = len(last.values) > 0; again {
			sequence, values = last.sequence, last.values
		}
	}
	var batch recordbatch.Batch
	for _, v := range values {
		batch.Append(recordbatch.Record{Value: []byte(v), Timestamp: time.Now()})
	}
	encoded, err := batch.Encode(nil, recordbatch.None, p, int32(sequence))
	if err != nil {
		c.t.Fatal(err)
	}
	var offset int64
	err = c.again(func() (err error) {
		offset, err = c.client.Produce(c.within(), c.topic, 0, encoded)
		return err
	})
	is := fmt.Sprint(offset)
	switch failure.KindOf(err) {
	case failure.Fenced:
		is = errFenced.Error()
	case failure.OutOfOrder:
		is = errOutOfOrder.Error()
	default:
		if err != nil {
			c.t.Fatal(err)
		}
	}
	stored, isNew, err := c.model.produce(int(p.Epoch), sequence, time.Now(), values...)
	want := fmt.Sprint(stored)
	if err != nil {
		want = err.Error()
	}
	if isNew && err == nil {
		c.last[by] = produced{sequence, values}
	}
	c.same(fmt.Sprintf("produce %q with epoch %d and sequence %d, again %t", values, p.Epoch, sequence, again), is, want)
}

func (c *kafkaComparison) read(offset int) {
	c.t.Helper()
	var r broker.Record
	var found bool
	err := c.again(func() (err error) {
		r, found, err = c.client.ReadOne(c.within(), c.topic, 0, int64(offset))
		return err
	})
	is, want := "none", "none"
	switch {
	case errors.Is(err, broker.ErrPastEnd):
	case err != nil:
		c.t.Fatal(err)
	case found:
		is = string(r.Value)
	}
	if at := c.model.at(int64(offset)); at != nil {
		want = at.is
	}
	c.same(fmt.Sprintf("the record at %d", offset), is, want)
}

func (c *kafkaComparison) same(what, broker, model string) {
	c.t.Helper()
	if broker != model {
		c.t.Fatalf("operation %d: %s: the broker answers %q, the model %q", c.number, what, broker, model)
	}
}

package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

func TestMain(m *testing.M) { os.Exit(kafkabrokertest.Run(m)) }

// patience bounds every wait. Only a failing test reaches it.
const patience = 3 * time.Minute

// newClient returns a client for the broker at addr. The functions in change modify its options.
func newClient(t testing.TB, addr string, change ...func(*Options)) *Client {
	t.Helper()
	o := Options{Addrs: []string{addr}, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// within returns a context that ends before the test times out.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// record returns a record with a key and a value. The value "-" makes it a tombstone.
func record(key, value string) recordbatch.Record {
	r := recordbatch.Record{Key: []byte(key), Value: []byte(value), Timestamp: time.UnixMilli(1700000000000)}
	if value == "-" {
		r.Value = nil
	}
	return r
}

// batch encodes records as one batch.
func batch(t testing.TB, codec recordbatch.Compression, p recordbatch.Producer, sequence int32, records ...recordbatch.Record) []byte {
	t.Helper()
	var b recordbatch.Batch
	for _, r := range records {
		b.Append(r)
	}
	encoded, err := b.Encode(nil, codec, p, sequence)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// put produces records in one batch without a producer ID, and returns the offset of the first
// record. It retries until the broker acknowledges the batch.
func put(t testing.TB, c *Client, topic string, partition int, records ...recordbatch.Record) int64 {
	t.Helper()
	return putAs(t, c, topic, partition, NoProducer, recordbatch.NoSequence, records...)
}

func putAs(t testing.TB, c *Client, topic string, partition int, p recordbatch.Producer, sequence int32, records ...recordbatch.Record) int64 {
	t.Helper()
	encoded := batch(t, recordbatch.None, p, sequence, records...)
	ctx := within(t)
	var offset int64
	err := c.persist(ctx, topic, func() (err error) {
		offset, err = c.Produce(ctx, topic, partition, encoded)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return offset
}

// readAll reads [from, to) and returns each record as "offset key=value".
func readAll(t testing.TB, c *Client, topic string, partition int, from, to int64) (start int64, got []string) {
	t.Helper()
	start, err := c.Read(within(t), topic, partition, from, to, func(r Record) error {
		got = append(got, show(r))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return start, got
}

func show(r Record) string {
	value := string(r.Value)
	if r.Value == nil {
		value = "-"
	}
	return fmt.Sprintf("%d %s=%s", r.Offset, r.Key, value)
}

// wantError fails t unless err is of the kind and its text contains all parts.
func wantError(t testing.TB, err error, kind failure.Kind, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if got := failure.KindOf(err); got != kind {
		t.Errorf("got kind %d, want %d, of: %v", got, kind, err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
}

func wantMisconfigured(t testing.TB, err error, kind failure.Kind, parts ...string) {
	t.Helper()
	wantError(t, err, kind, parts...)
	if !errors.Is(err, failure.ErrMisconfigured) {
		t.Errorf("ErrMisconfigured is not in the chain of: %v", err)
	}
}

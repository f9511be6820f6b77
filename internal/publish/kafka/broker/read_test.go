package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

func TestReadGivesRecordsWhole(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	c := newClient(t, b.Addr())
	topic := kafkabrokertest.Topic(t, b, "whole", 1, nil)
	large := make([]byte, 200_000) // spans several of kafka-go's memory pages
	for i := range large {
		large[i] = byte(i / 7)
	}
	put(t, c, topic, 0,
		recordbatch.Record{Timestamp: time.UnixMilli(1700000000123), Key: []byte("k"), Value: large,
			Headers: []recordbatch.Header{{Key: "ce_id", Value: []byte("1")}, {Key: "nil"}, {Key: "ce_id", Value: []byte("2")}}},
		recordbatch.Record{Timestamp: time.UnixMilli(1), Value: []byte{}},
		recordbatch.Record{Timestamp: time.UnixMilli(1), Key: []byte{}})

	check := func(r Record) error {
		switch r.Offset {
		case 0:
			if !slices.Equal(r.Key, []byte("k")) || !slices.Equal(r.Value, large) || !r.Time.Equal(time.UnixMilli(1700000000123)) {
				t.Errorf("got %q, %d bytes, %s", r.Key, len(r.Value), r.Time)
			}
			if got, want := fmt.Sprintf("%q", r.Headers), `[{"ce_id" "1"} {"nil" ""} {"ce_id" "2"}]`; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		case 1:
			if r.Key != nil || r.Value == nil || len(r.Value) != 0 {
				t.Errorf("got %v, %v, want no key and an empty value", r.Key, r.Value)
			}
		case 2:
			if r.Key == nil || len(r.Key) != 0 || r.Value != nil {
				t.Errorf("got %v, %v, want an empty key and no value", r.Key, r.Value)
			}
		}
		return nil
	}
	if _, err := c.Read(within(t), topic, 0, 0, 3, check); err != nil {
		t.Fatal(err)
	}
	for offset := range int64(3) {
		r, found, err := c.ReadOne(within(t), topic, 0, offset)
		if err != nil || !found || r.Offset != offset {
			t.Fatal(r.Offset, found, err)
		}
		_ = check(r) // check reports failures through t
	}
	if _, found, err := c.ReadOne(within(t), topic, 0, 3); err != nil || found {
		t.Errorf("at the log's end: got %v, %v", found, err)
	}
	before := c.Fetches()
	if _, found, err := c.ReadOne(within(t), topic, 0, 99); err != nil || found {
		t.Errorf("past the log's end: got %v, %v", found, err)
	}
	if got := c.Fetches(); got <= before {
		t.Errorf("%d fetch requests were counted, and %d before", got, before)
	}
}

// TestReadOfALogThatEnds verifies that a read returns ErrPastEnd when the log ends before the requested
// range. The read gives up after a while, although the broker might only be behind.
func TestReadOfALogThatEnds(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	c := newClient(t, b.Addr())
	topic := kafkabrokertest.Topic(t, b, "short", 1, nil)
	put(t, c, topic, 0, record("a", "1"), record("b", "1"))
	records := 0
	if _, err := c.Read(within(t), topic, 0, 0, 5, func(Record) error { records++; return nil }); !errors.Is(err, ErrPastEnd) || records != 2 {
		t.Errorf("got %d records and %v, want 2 and %v", records, err, ErrPastEnd)
	}
	if _, found, err := c.ReadFirst(within(t), topic, 0, 2, 5); found || !errors.Is(err, ErrPastEnd) {
		t.Errorf("got %t, %v, want %v", found, err, ErrPastEnd)
	}
}

func TestReadBatchByBatch(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	c := newClient(t, b.Addr())
	topic := kafkabrokertest.Topic(t, b, "single", 1, nil)
	var want, got []string
	for i := range 10 {
		want = append(want, fmt.Sprintf("%d a=%d", put(t, c, topic, 0, record("a", fmt.Sprint(i))), i))
	}
	r := c.cursor(topic, 0, 0, 1, nil)
	for r.next < 10 {
		if err := r.advance(within(t), 10, readWait, func(r Record) error { got = append(got, show(r)); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if r.bytes != 1 {
		t.Errorf("asks for %d bytes after batches that all fitted", r.bytes)
	}
}

func TestReadEndsWithTheConsumer(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	c := newClient(t, b.Addr())
	topic := kafkabrokertest.Topic(t, b, "ends", 1, nil)
	put(t, c, topic, 0, record("a", "1"), record("b", "1"), record("c", "1"))
	enough := errors.New("enough")
	for name, read := range map[string]func(each func(Record) error) error{
		"Read":   func(each func(Record) error) error { _, err := c.Read(within(t), topic, 0, 0, 3, each); return err },
		"Follow": func(each func(Record) error) error { return c.Follow(within(t), topic, 0, 0, each) },
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := read(func(r Record) error {
				if calls++; r.Offset == 1 {
					return enough
				}
				return nil
			})
			if err != enough { //nolint:errorlint // Read must not wrap the error
				t.Errorf("got %v", err)
			}
			if calls != 2 {
				t.Errorf("called %d times, want twice", calls)
			}
		})
	}
	if start, got := readAll(t, c, topic, 0, 2, 2); start != 2 || got != nil {
		t.Errorf("an empty range: got start %d and records %q", start, got)
	}
	if _, err := c.Read(within(t), topic, 0, -1, 3, nil); err == nil {
		t.Error("no error for a negative offset, which kafka-go takes for the first or the last offset")
	}
}

func TestFollow(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	c := newClient(t, b.Addr())
	topic := kafkabrokertest.Topic(t, b, "follow", 1, nil)
	put(t, c, topic, 0, record("a", "1"), record("a", "2"))
	ctx, cancel := context.WithCancel(within(t))
	got, ended := make(chan string), make(chan error, 1)
	go func() {
		ended <- c.Follow(ctx, topic, 0, 1, func(r Record) error { got <- show(r); return nil })
	}()
	for i, want := range []string{"1 a=2", "2 a=3", "3 a=4"} {
		if i > 0 {
			put(t, c, topic, 0, record("a", fmt.Sprint(i+2)))
		}
		if got := <-got; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
}

// TestReadOverARestart verifies that a restart of the broker delays a read but does not end it.
func TestReadOverARestart(t *testing.T) {
	b := kafkabrokertest.Start(t, kafkabroker.Options{})
	c := newClient(t, b.Addr())
	topic := kafkabrokertest.Topic(t, b, "restart", 1, nil)
	put(t, c, topic, 0, record("a", "1"))
	got, ended := make(chan string, 10), make(chan error, 1)
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		ended <- c.Follow(ctx, topic, 0, 0, func(r Record) error { got <- show(r); return nil })
	}()
	if got, want := <-got, "0 a=1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	b.Kill()
	_, err := c.Produce(within(t), topic, 0, batch(t, recordbatch.None, NoProducer, -1, record("a", "2")))
	wantError(t, err, failure.Retry)
	b.Start()
	if offset := put(t, c, topic, 0, record("a", "2")); offset != 1 {
		t.Errorf("got offset %d, want 1", offset)
	}
	if got, want := <-got, "1 a=2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	cancel()
	<-ended
}

// TestFrozenBroker verifies that a request to a hanging broker ends with its timeout, and that Close ends
// a request that still waits.
func TestFrozenBroker(t *testing.T) {
	b := kafkabrokertest.Start(t, kafkabroker.Options{})
	c := newClient(t, b.Addr(), func(o *Options) { o.RequestTimeout = time.Second })
	topic := kafkabrokertest.Topic(t, b, "frozen", 1, nil)
	put(t, c, topic, 0, record("a", "1"))
	b.Freeze()
	encoded := batch(t, recordbatch.None, NoProducer, -1, record("a", "2"))
	for range 2 {
		_, err := c.Produce(within(t), topic, 0, encoded)
		wantError(t, err, failure.Retry, b.Addr(), "did not respond in time")
		clear(encoded) // the race detector checks that kafka-go no longer reads the batch
	}
	patient := newClient(t, b.Addr(), func(o *Options) { o.RequestTimeout = time.Hour })
	ended := make(chan error, 1)
	go func() {
		_, err := patient.Produce(context.Background(), topic, 0, one(t))
		ended <- err
	}()
	poll.Holds(t, "it connects", func() bool { return len(patient.connections()) > 0 })
	patient.Close()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("no error from a closed client")
		}
	case <-within(t).Done():
		t.Error("Close does not end a request that waits for a broker")
	}
	b.Thaw()
	put(t, c, topic, 0, record("a", "3"))
}

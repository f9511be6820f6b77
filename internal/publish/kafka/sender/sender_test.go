package sender

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// partition simulates how a broker handles the batches of one producer, according to KIP-98 and
// ProducerStateManager.
type partition struct {
	mu         sync.Mutex
	keys       []string    // stored, by offset
	sequence   int32       // expected next
	last       int32       // base sequence of the last batch
	base       int64       // offset of the last batch
	timestamps []time.Time // of the batches

	// fault is called before and after each batch is handled. An error replaces the broker's
	// response.
	fault func(stored bool) error
}

func (p *partition) produce(_ context.Context, _ string, _ int, raw []byte) (int64, error) {
	if p.fault != nil {
		if err := p.fault(false); err != nil {
			return 0, err
		}
	}
	base, err := p.store(raw)
	if p.fault != nil && err == nil {
		if err := p.fault(true); err != nil {
			return 0, err
		}
	}
	return base, err
}

func (p *partition) store(raw []byte) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var batch kmsg.RecordBatch
	if err := batch.ReadFrom(raw); err != nil {
		return 0, err
	}
	if batch.FirstSequence == p.last && len(p.keys) > 0 {
		return p.base, nil // a repeated batch
	}
	if batch.FirstSequence != p.sequence {
		return 0, kafkago.OutOfOrderSequenceNumber
	}
	p.base, p.last = int64(len(p.keys)), batch.FirstSequence
	p.timestamps = append(p.timestamps, time.UnixMilli(batch.FirstTimestamp))
	p.sequence += batch.NumRecords
	for records := batch.Records; len(records) > 0; {
		length, size := binary.Varint(records)
		var r kmsg.Record
		if err := r.ReadFrom(records[:size+int(length)]); err != nil {
			return 0, err
		}
		p.keys = append(p.keys, string(r.Key))
		records = records[size+int(length):]
	}
	return p.base, nil
}

// testSender returns a sender to p, and runs it until the returned function is called or the test
// ends. change modifies the sender.
func testSender(t *testing.T, p *partition, change ...func(*Sender)) (*Sender, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(t.Context())
	l := New(Config{
		Topic: "t", Produce: p.produce, Producer: recordbatch.Producer{ID: 7, Epoch: 1}, Limit: 1 << 20,
		Fail: cancel, Attempted: func(*Sender, error) {}, Sent: func(int, int) {},
	})
	for _, c := range change {
		c(l)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	t.Cleanup(func() { cancel(errEnded); <-ended })
	return l, cancel
}

// errEnded ends a session.
var errEnded = errors.New("the session ended")

// answers collects the results of items.
type answers struct {
	mu  sync.Mutex
	all []answer
}

type answer struct {
	key    string
	offset int64
	err    error
}

func (o *answers) item(key string) *Item {
	return &Item{Record: recordbatch.Record{Key: []byte(key)}, Done: func(offset int64, err error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = append(o.all, answer{key, offset, err})
	}}
}

func (o *answers) of(key string) (found []answer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, other := range o.all {
		if other.key == key {
			found = append(found, other)
		}
	}
	return found
}

// TestEveryRecordIsStoredOnceInOrder verifies that every record is stored once and in order,
// although requests and responses are dropped at random. It runs with a thousand seeds.
func TestEveryRecordIsStoredOnceInOrder(t *testing.T) {
	faults := []error{kafkago.NotLeaderForPartition, kafkago.RequestTimedOut, io.ErrUnexpectedEOF, kafkago.NotEnoughReplicasAfterAppend}
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			random, broken := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1))
			p := &partition{fault: func(bool) error {
				if broken.IntN(3) > 0 {
					return nil
				}
				return faults[broken.IntN(len(faults))]
			}}
			l, _ := testSender(t, p)
			o := &answers{}
			var want []string
			for n := range 50 {
				key := fmt.Sprint(n)
				want = append(want, key)
				l.Add(o.item(key))
				if random.IntN(4) == 0 {
					time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond) // on the bubble's clock
				}
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if !slices.Equal(p.keys, want) {
				t.Fatalf("seed %d: stored %v", seed, p.keys)
			}
			for n, got := range o.all {
				if got != (answer{want[n], int64(n), nil}) {
					t.Fatalf("seed %d: answer %d is %+v", seed, n, got)
				}
			}
			if len(o.all) != len(want) {
				t.Fatalf("seed %d: %d answers", seed, len(o.all))
			}
		})
	}
}

// rejectLarger rejects batches of more than limit bytes.
func rejectLarger(l *Sender, limit int) {
	produce := l.Produce
	l.Produce = func(ctx context.Context, topic string, partition int, batch []byte) (int64, error) {
		if len(batch) > limit {
			return 0, kafkago.MessageSizeTooLarge
		}
		return produce(ctx, topic, partition, batch)
	}
}

// TestATombstoneStaysWithItsRecord verifies that a record and its tombstone are stored together,
// however a batch is split. The offset of an item is the offset of its first record.
func TestATombstoneStaysWithItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partition{}
		l, _ := testSender(t, p)
		rejectLarger(l, 90)
		o := &answers{}
		l.mu.Lock() // so that the items are in one batch
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			it := o.item(key)
			if key != "c" {
				it.Tombstone = &recordbatch.Record{Key: []byte("-" + key)}
			}
			l.waiting = append(l.waiting, it)
		}
		l.mu.Unlock()
		f := o.item("f")
		f.Record.Value = []byte("a value")
		l.Add(f)
		synctest.Wait()
		if want := []string{"a", "-a", "b", "-b", "c", "d", "-d", "e", "-e", "f"}; !slices.Equal(p.keys, want) {
			t.Errorf("stored %q, want %q", p.keys, want)
		}
		for key, want := range map[string]int64{"a": 0, "b": 2, "c": 4, "d": 5, "e": 7, "f": 9} {
			if got := o.of(key); len(got) != 1 || got[0].err != nil || got[0].offset != want {
				t.Errorf("%s got %v, want offset %d", key, got, want)
			}
		}
		if last := l.LastStored(); last.Next != 10 || last.Tombstone {
			t.Errorf("the last record is %+v", last)
		}
	})
}

// TestTimestampsDoNotFall verifies that the timestamp of a batch is not before the bound, unless
// the bound is too far ahead.
func TestTimestampsDoNotFall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partition{}
		l, _ := testSender(t, p)
		o, now := &answers{}, time.Now()
		add := func(key string) { l.Add(o.item(key)); synctest.Wait() }
		add("now")
		l.NotBefore(now.Add(time.Hour + time.Second))
		add("too far ahead")
		l.NotBefore(now.Add(time.Hour))
		add("ahead")
		l.NotBefore(now)
		add("still")
		time.Sleep(2 * time.Hour)
		add("later")
		hour := now.Add(time.Hour)
		if want := []time.Time{now, now, hour, hour, now.Add(2 * time.Hour)}; !slices.EqualFunc(p.timestamps, want, time.Time.Equal) {
			t.Errorf("got %v, want %v", p.timestamps, want)
		}
	})
}

// TestABatchTooLargeIsSplit verifies that a batch that is too large is split, down to the single
// record that is too large.
func TestABatchTooLargeIsSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partition{}
		l, _ := testSender(t, p)
		rejectLarger(l, 200)
		o := &answers{}
		large := o.item("large")
		large.Record.Value = make([]byte, 300)
		l.mu.Lock() // so that the items are in one batch
		l.waiting = append(l.waiting, o.item("a"), o.item("b"), large, o.item("c"))
		l.mu.Unlock()
		l.Add(o.item("d"))
		synctest.Wait()
		if want := []string{"a", "b", "c", "d"}; !slices.Equal(p.keys, want) {
			t.Errorf("stored %v, want %v", p.keys, want)
		}
		if got := o.of("large"); len(got) != 1 || !errors.Is(got[0].err, publish.ErrTooLarge) {
			t.Errorf("the large record got %v, want %v", got, publish.ErrTooLarge)
		}
	})
}

// TestARefusalAfterADoubtEndsTheSession verifies that a rejected batch ends the session if an
// earlier attempt has an unknown outcome. The earlier attempt may have been stored, so its sequence
// numbers must not be reused.
func TestARefusalAfterADoubtEndsTheSession(t *testing.T) {
	for name, c := range map[string]struct {
		answers []error
		ends    bool
		notSent bool
	}{
		"refused":              {[]error{kafkago.InvalidRecord}, false, true},
		"refused after doubt":  {[]error{io.EOF, kafkago.InvalidRecord}, true, false},
		"too large after one":  {[]error{io.EOF, kafkago.MessageSizeTooLarge}, true, false},
		"not allowed":          {[]error{kafkago.TopicAuthorizationFailed}, false, true},
		"out of order":         {[]error{kafkago.OutOfOrderSequenceNumber}, true, false},
		"known already":        {[]error{kafkago.DuplicateSequenceNumber}, true, false},
		"fenced":               {[]error{kafkago.InvalidProducerEpoch}, true, false},
		"not allowed in doubt": {[]error{io.EOF, kafkago.TopicAuthorizationFailed, nil}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partition{}
				n := 0
				p.fault = func(stored bool) error {
					if stored || n >= len(c.answers) {
						return nil
					}
					n++
					return c.answers[n-1]
				}
				l, _ := testSender(t, p)
				var failure error
				cancel := l.Fail
				l.Fail = func(err error) { failure = err; cancel(err) }
				o := &answers{}
				l.Add(o.item("a"))
				time.Sleep(time.Minute)
				synctest.Wait()
				if ended := failure != nil; ended != c.ends {
					t.Errorf("the session's end: %v", failure)
				}
				got := o.of("a")
				if len(got) != 1 || errors.Is(got[0].err, publish.ErrNotSent) != c.notSent {
					t.Errorf("told %v, want not sent: %t", got, c.notSent)
				}
				l.Add(o.item("b"))
				time.Sleep(time.Minute)
				synctest.Wait()
				b := o.of("b")
				if len(b) != 1 || (b[0].err == nil) == c.ends {
					t.Errorf("the next record got %v", b)
				}
			})
		})
	}
}

// TestOffsetsThatGoBackEndTheSession verifies that a batch with a lower offset than an earlier
// batch ends the session, because the partition was recreated or truncated.
func TestOffsetsThatGoBackEndTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partition{}
		l, _ := testSender(t, p)
		var failure error
		cancel := l.Fail
		l.Fail = func(err error) { failure = err; cancel(err) }
		o := &answers{}
		l.Add(o.item("a"))
		synctest.Wait()
		p.keys = nil
		p.last = -1
		l.Add(o.item("b"))
		synctest.Wait()
		if !errors.Is(failure, ErrDataLost) {
			t.Errorf("the session ended with %v, want %v", failure, ErrDataLost)
		}
	})
}

func TestTheEndCompletesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partition{fault: func(bool) error { return io.EOF }}
		l, cancel := testSender(t, p)
		o := &answers{}
		l.Add(o.item("in a batch"))
		synctest.Wait()
		l.Add(o.item("waiting"))
		withdrawn := o.item("withdrawn")
		l.Add(withdrawn)
		if !l.Withdraw(withdrawn) || l.Withdraw(withdrawn) {
			t.Error("an item that waits can be withdrawn once")
		}
		cancel(errEnded)
		synctest.Wait()
		l.Add(o.item("late"))
		for key, notSent := range map[string]bool{"in a batch": false, "waiting": true, "late": true} {
			got := o.of(key)
			if len(got) != 1 || !errors.Is(got[0].err, errEnded) || errors.Is(got[0].err, publish.ErrNotSent) != notSent {
				t.Errorf("%s got %v", key, got)
			}
		}
		if got := o.of("withdrawn"); len(got) != 0 {
			t.Errorf("the withdrawn record got %v", got)
		}
	})
}

func TestABatchIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partition{}
		batches := 0
		l, _ := testSender(t, p, func(l *Sender) { l.Limit, l.Sent = 1000, func(int, int) { batches++ } })
		o := &answers{}
		l.mu.Lock()
		for n := range 100 {
			it := o.item(fmt.Sprint(n))
			it.Record.Value = make([]byte, 90)
			l.waiting = append(l.waiting, it)
		}
		l.mu.Unlock()
		l.Add(o.item("last"))
		synctest.Wait()
		if batches < 10 || batches > 15 || len(p.keys) != 101 {
			t.Errorf("%d batches for %d records of about 100 bytes, with a limit of 1000", batches, len(p.keys))
		}
	})
}

// TestAttempted verifies that a sender reports every failed attempt, and the first success after one.
func TestAttempted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts, got := 0, []error(nil)
		p := &partition{fault: func(stored bool) error {
			if attempts++; !stored && attempts <= 2 {
				return kafkago.LeaderNotAvailable
			}
			return nil
		}}
		l, _ := testSender(t, p, func(s *Sender) { s.Attempted = func(_ *Sender, err error) { got = append(got, err) } })
		o := &answers{}
		for _, key := range []string{"a", "b", "c"} {
			l.Add(o.item(key))
			time.Sleep(time.Minute) // on the synctest clock
		}
		if want := []error{kafkago.LeaderNotAvailable, kafkago.LeaderNotAvailable, nil}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

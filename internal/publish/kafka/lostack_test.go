package kafka

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

var lostAcks = flag.Int("lostacks", 30, "how often TestLostAcknowledgements_Slow loses acknowledgements")

// TestLostAcknowledgements_Slow drops acknowledgements of stored batches at random moments, while hundreds of
// objects change, and breaks the connections. It verifies that every event is in the topic once, and that the
// events of each object are in order. Either the bus recovers by itself, or the caller publishes again.
func TestLostAcknowledgements_Slow(t *testing.T) {
	kb, proxy := proxiedBroker(t)
	o := testOptions(proxy.Addr())
	o.AckTimeout = time.Second // so that the caller has to handle some losses
	bus := openBus(t, o)
	if err := bus.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	past, err := broker.New(broker.Options{Addrs: []string{kb.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { past.Close() })

	c := startChurn(t, bus, 300)
	l := loser{t: t, churn: c, proxy: proxy, past: past}
	attempts := 0
	for lost := 0; lost < *lostAcks; attempts++ {
		c.await(1+rand.IntN(600), fateStored)
		if l.lose() {
			if lost++; lost%100 == 0 {
				t.Logf("%d of %d", lost, *lostAcks)
			}
		}
	}
	c.stop()
	t.Logf("acknowledgements lost %d times for certain, in %d attempts; attempts to publish: %v", *lostAcks, attempts, c.fates)

	var stored, last = map[string][]string{}, map[event.Key]uint64{}
	for _, a := range c.authors {
		stored[event.PartitionKey(publishtest.Cluster, a.object.Key())], last[a.object.Key()] = a.stored, a.position
	}
	if diff := cmp.Diff(stored, idsByKey(t, kb.Addr())); diff != "" {
		t.Errorf("the events of each object (-acknowledged +in the topic):\n%s", diff)
	}

	// The checkpoint topic had the same faults.
	if err := bus.Close(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(last, loadPositions(t, testOptions(kb.Addr()))); diff != "" {
		t.Errorf("the last event of each object (-acknowledged +in the checkpoint topic):\n%s", diff)
	}
}

// idsByKey reads the IDs of all events of objects, in the order of their offsets.
func idsByKey(t *testing.T, addr string) map[string][]string {
	t.Helper()
	ids := map[string][]string{}
	for _, r := range readTopic(t, addr, "kuberelay") {
		if isControl(r) {
			continue
		}
		attribute, err := attributesOf(recordOf(r))
		if err != nil {
			t.Fatal(err)
		}
		ids[string(r.Key)] = append(ids[string(r.Key)], attribute("id"))
	}
	return ids
}

// loadPositions returns the positions that the next writer loads.
func loadPositions(t *testing.T, o Options) map[event.Key]uint64 {
	t.Helper()
	bus := openBus(t, o)
	if err := bus.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	positions := map[event.Key]uint64{}
	if err := bus.Load(t.Context(), func(k event.Key, a event.Acked) error { positions[k] = a.Position; return nil }); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(positions, func(_ event.Key, position uint64) bool { return position == 0 })
	return positions
}

// loser loses acknowledgements.
type loser struct {
	t     *testing.T
	churn *churn
	proxy *faultproxy.Proxy
	past  *broker.Client // bypasses the proxy
}

// lose drops responses until the brokers have stored a batch, and then breaks the connections. It
// reports whether it saw the log grow. If it did not, the brokers may have stored a batch before
// the first look.
func (l loser) lose() (certain bool) {
	topic := []string{"kuberelay", "kuberelay.checkpoint"}[rand.IntN(2)]
	l.proxy.DropAnswers()
	before := l.length(topic)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range 50 {
		<-tick.C
		if certain = l.length(topic) > before; certain {
			break
		}
	}
	if rand.IntN(10) == 0 {
		l.churn.await(len(l.churn.authors), fateUnknown, fateNotSent) // the bus gives up waiting
	}
	l.proxy.Break()
	l.proxy.Pass()
	return certain
}

// length returns the number of records that the brokers have stored and may have acknowledged.
func (l loser) length(topic string) (sum int64) {
	l.t.Helper()
	offsets, err := l.past.Offsets(l.t.Context(), topic)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, end := range offsets.End {
		sum += end
	}
	return sum
}

// fate is the outcome of an attempt to publish.
type fate string

const (
	fateStored   fate = "stored"
	fateConflict fate = "conflict"
	fateNotSent  fate = "not sent"
	fateUnknown  fate = "unknown"
)

// churn changes a number of objects continuously.
type churn struct {
	t       *testing.T
	bus     *Bus
	authors []*author
	running sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	fates   map[fate]int
	changed chan struct{} // closed when an attempt has ended
}

// author publishes the events of one object as the forwarder does, one at a time.
type author struct {
	object   publishtest.Object
	position uint64   // of the last event
	stored   []string // the IDs of the events that the bus has confirmed, in order
}

func startChurn(t *testing.T, bus *Bus, objects int) *churn {
	c := &churn{t: t, bus: bus, fates: map[fate]int{}, changed: make(chan struct{})}
	for i := range objects {
		a := &author{object: publishtest.Object{Name: fmt.Sprintf("object-%d", i), Version: 1, Data: "data"}}
		c.authors = append(c.authors, a)
		c.running.Go(func() {
			for last := fateStored; (last != fateStored || !c.isStopped()) && t.Context().Err() == nil; {
				last = c.attempt(a)
			}
		})
	}
	t.Cleanup(c.stop)
	return c
}

// stop ends the changes after every published event is known to be stored.
func (c *churn) stop() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.running.Wait()
}

func (c *churn) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

// attempt publishes the object's current state. If the outcome is unknown, the next attempt
// publishes the same state or a later one, because the object may have changed.
func (c *churn) attempt(a *author) (o fate) {
	defer func() { c.count(o) }()
	m := a.object.Message(c.t, a.position)
	type result struct {
		position uint64
		err      error
	}
	done := make(chan result, 1)
	c.bus.Publish(c.t.Context(), m, func(position uint64, err error) { done <- result{position, err} })
	r := <-done
	var held *publish.ConflictError
	switch {
	case r.err == nil:
		a.stored, a.position = append(a.stored, m.ID), r.position
		a.object.Version++
		return fateStored
	case errors.As(r.err, &held):
		last := a.object
		version, err := strconv.Atoi(held.Bus.ResourceVersion)
		if err != nil || held.Bus.Position == a.position {
			c.t.Errorf("published to follow %d: %v", a.position, r.err)
		}
		last.Version = version
		a.stored, a.position = append(a.stored, last.Message(c.t, 0).ID), held.Bus.Position
		a.object.Version = max(a.object.Version, version+1)
		return fateConflict
	case errors.Is(r.err, publish.ErrNotSent):
		select {
		case <-time.After(20 * time.Millisecond): // the backoff of the forwarder's queue
		case <-c.t.Context().Done():
		}
		return fateNotSent
	}
	a.object.Version += rand.IntN(2)
	return fateUnknown
}

func (c *churn) count(o fate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fates[o]++
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits until n more attempts have one of the given fates.
func (c *churn) await(n int, fates ...fate) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := func() (sum int) {
		for _, o := range fates {
			sum += c.fates[o]
		}
		return sum
	}
	for until := sum() + n; sum() < until; {
		if ctx.Err() != nil {
			c.t.Fatalf("%d attempts are not yet %s; all: %v, the bus: %v", until-sum(), fates, c.fates, c.bus.Ready())
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
}

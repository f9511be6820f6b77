package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

func (w *writers) point(version int) *event.Message {
	w.t.Helper()
	now := time.Now()
	m, err := event.Builder{Cluster: w.opts.Cluster}.Resolved(event.Point{
		Resource: event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true},
		Version:  fmt.Sprint(version), AsOf: now, Taken: now,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// TestAPointIsInEveryPartition verifies that a consistency point is in every partition once,
// without a value, and after the acknowledged events. A table of the topic has no row for it, and
// the next writer loads no entry for it.
func TestAPointIsInEveryPartition(t *testing.T) {
	const partitions, events = 3, 30
	w := newWriters(t, partitions)
	b := w.open()
	want := w.publishSome(b, "web-", events)
	m := w.point(9)
	at := w.mustPublish(b, m)
	later := w.publishSome(b, "later-", events)
	crash(b)

	points, before := [partitions][]int64{}, [partitions]int64{}
	for _, r := range readTopic(t, w.opts.Broker.Addrs[0], w.opts.Topic) {
		if string(r.Key) != event.ResolvedPartitionKey(w.opts.Cluster, m.Key.GroupResource()) {
			continue
		}
		if r.Value != nil {
			t.Errorf("the point in partition %d has a value: %s", r.Partition, r.Value)
		}
		points[r.Partition] = append(points[r.Partition], r.Offset)
	}
	for _, position := range want {
		p := publish.Partition(position)
		before[p] = max(before[p], publish.Offset(position))
	}
	for p, offsets := range points {
		if len(offsets) != 1 || offsets[0] < before[p] {
			t.Errorf("points at the offsets %d of partition %d, want one after %d", offsets, p, before[p])
		}
	}
	if publish.Partition(at) != 0 || len(points[0]) == 1 && publish.Offset(at) != points[0][0] {
		t.Errorf("the position is %d:%d, want that in partition 0", publish.Partition(at), publish.Offset(at))
	}
	for k, position := range later {
		want[k] = position
	}
	w.wantLoaded(w.open(), want)
}

// TestAPointIsInNewPartitions verifies that the first load after the topic got more partitions begins a new
// session, whose consistency points are in all partitions. An earlier version kept
// its session until a restart, or for up to 12 hours.
func TestAPointIsInNewPartitions(t *testing.T) {
	const before, after = 1, 3
	w := newWriters(t, before)
	b := w.open()
	want := w.publishSome(b, "web-", 5)
	w.addPartitions(after)
	await(t, "a load finds the new partitions", func() error {
		if _, err := w.acked(b); !errors.Is(err, errRenew) {
			return fmt.Errorf("the load does not end the session: %w", err)
		}
		return nil
	})
	await(t, "the next session has begun", func() error {
		_, err := w.publish(b, w.point(1))
		return err
	})
	w.wantLoaded(b, want)
	crash(b)
	has := map[int32]bool{}
	for _, r := range readTopic(t, w.opts.Broker.Addrs[0], w.opts.Topic) {
		has[r.Partition] = has[r.Partition] || strings.Contains(string(r.Key), "/_control/resolved/")
	}
	for p := range int32(after) {
		if !has[p] {
			t.Errorf("partition %d has no point", p)
		}
	}
}

// TestAPointOfAFrozenPartition verifies consistency points while one partition does not respond.
// The first point times out, and is not stored in that partition later. After the partition has
// stalled, the bus sends a point to no partition.
func TestAPointOfAFrozenPartition(t *testing.T) {
	const partitions, frozen = 2, 1
	w, f := freezable(t, partitions, frozen)
	w.opts.AckTimeout = 16 * time.Second // long enough to publish the first point before the partition counts as stalled
	b := w.open()
	f.freeze()
	held := make(chan error, 1)
	b.Publish(t.Context(), w.messageIn(frozen, "held"), func(_ uint64, err error) { held <- err })
	await(t, "the batch is in flight", func() error {
		if f.held.Load() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if _, err := w.publish(b, w.point(1)); err == nil || errors.Is(err, publish.ErrNotSent) || publish.ResultOf(err) != publish.ResultTimeout {
		t.Errorf("a point during a stall: %v, want a timeout that leaves open whether it is stored", err)
	}
	if _, err := w.publish(b, w.point(2)); !errors.Is(err, publish.ErrNotSent) {
		t.Errorf("a point after a stall: %v, want %v", err, publish.ErrNotSent)
	}
	<-held
	f.thaw()
	await(t, "the partition acknowledges again", func() error {
		_, err := w.publish(b, w.point(3))
		return err
	})
	crash(b)
	stored := [partitions]int{}
	for _, r := range readTopic(t, w.opts.Broker.Addrs[0], w.opts.Topic) {
		if string(r.Key) == event.ResolvedPartitionKey(w.opts.Cluster, event.Key{Group: "apps", Resource: "deployments"}.GroupResource()) {
			stored[r.Partition]++
		}
	}
	if stored != [partitions]int{2, 1} {
		t.Errorf("points by partition are %d, want that the frozen one has the last only", stored)
	}
}

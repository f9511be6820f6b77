package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
)

// The leading broker of each partition in benchmark frozen. The last broker leads one event partition
// and nothing else. If it led a checkpoint partition, it would also delay the events of the partitions
// that are recorded there.
var (
	frozenLeaders     = []int{3, 1, 2, 1, 2, 1}
	checkpointLeaders = []int{1, 2, 1}
)

const frozenPartition = 0

// benchFrozen makes changes, first without a fault and then while the broker that leads one partition is
// frozen. The connections to the frozen broker stay open, as after SIGSTOP, but it does not respond.
// After 9 s, the cluster considers the broker dead, and the partition has no leader. At the end, the
// broker thaws.
func (s *stage) benchFrozen(ctx context.Context, n int) error {
	cluster, err := s.startKafka(ctx, 3)
	if err != nil {
		return err
	}
	topic := &kafkaTopic{cluster, "frozen"}
	for name, leaders := range map[string][]int{topic.name: frozenLeaders, topic.name + ".checkpoint": checkpointLeaders, "__transaction_state": {1}} {
		if err := cluster.brokers[0].CreateTopicOn(ctx, name, leaders, map[string]string{"cleanup.policy": "compact"}); err != nil {
			return errors.Join(err, cluster.close())
		}
	}
	return s.onScene(ctx, topic, func(ctx context.Context, sc *scene) error {
		if err := sc.forwarder.idle(ctx); err != nil {
			return err
		}
		baseline, err := sc.changeFor(ctx, liveTime, liveRate, liveObject)
		if err != nil {
			return err
		}
		during, thawed, err := sc.changeFrozen(ctx, cluster.brokers[2])
		if err != nil {
			return err
		}
		s.report.addFrozen(n, sc.subscriber, baseline, during, thawed)
		return nil
	})
}

// changeFrozen makes changes while the broker is frozen, thaws it, and waits until all changes have
// arrived.
func (sc *scene) changeFrozen(ctx context.Context, broker *kafkabroker.Broker) (during []change, thawed time.Time, err error) {
	if err := broker.Freeze(); err != nil {
		return nil, thawed, err
	}
	start := time.Now()
	stop, cancel := context.WithTimeout(ctx, liveTime)
	defer cancel()
	if err := pace(ctx, stop, liveRate, func(ctx context.Context, i int) error { return sc.change(ctx, liveObject(i)) }); err != nil {
		return nil, thawed, err
	}
	during = sc.of("", start, time.Now())
	healthy, _ := sc.subscriber.split(during)
	late := sc.subscriber.await(ctx, liveTime, healthy) // while the broker is still frozen
	if err := broker.Thaw(); err != nil {
		return nil, thawed, err
	}
	thawed = time.Now()
	if late != nil {
		sc.say("some changes of other partitions have to wait until the broker goes on: %v", late)
	}
	return during, thawed, sc.subscriber.await(ctx, arriveLimit, during)
}

// split separates the changes in the healthy partitions from the changes in the frozen partition.
func (s *subscriber) split(changes []change) (healthy, frozen []change) {
	for _, c := range changes {
		if s.partitionOf(c.object) == frozenPartition {
			frozen = append(frozen, c)
		} else {
			healthy = append(healthy, c)
		}
	}
	return healthy, frozen
}

func (r *report) addFrozen(n int, sub *subscriber, baseline, during []change, thawed time.Time) {
	before, _ := sub.split(baseline)
	healthy, stuck := sub.split(during)
	was, is := sub.latencies(before), sub.latencies(healthy)
	section := r.add(fmt.Sprintf("Kafka with %d partitions, one of them frozen, %d pods: changes in the others", len(frozenLeaders), n),
		"from the API server's answer to a consumer", "no fault, ms", "frozen, ms", "ratio")
	for _, row := range []struct {
		name string
		p    float64
	}{{"p50", 50}, {"p99", 99}, {"worst", 100}} {
		old, now := was.percentile(row.p), is.percentile(row.p)
		section.add(row.name, fmt.Sprintf("%.1f", old), fmt.Sprintf("%.1f", now), fmt.Sprintf("%.2f", now/old))
	}
	last := thawed
	for _, c := range stuck {
		if at, ok := sub.seen(c); ok && at.After(last) {
			last = at
		}
	}
	section.notes = []string{fmt.Sprintf("%d changes without a fault and %d with it, %.0f per second in all partitions. The %d changes in the frozen partition, or later states, arrived within %.1f s after its broker went on.",
		len(was), len(is), liveRate, len(stuck), last.Sub(thawed).Seconds())}
	var measured series
	if len(stuck) > 0 { // without a change in the frozen partition, the promise isn't met
		measured = series{is.percentile(99) / was.percentile(99)}
	}
	r.promise(fmt.Sprintf("%d pods: with one Kafka partition frozen, a change in the others takes at most %.1f × (p99 of %d and %d)", n, maxSlower, len(was), len(is)),
		measured, 0, maxSlower, "%.2f")
}

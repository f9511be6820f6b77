package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/kuberelay/kuberelay/test/harness"
)

// The deeds on a cluster of Kafka brokers. n chooses a partition, whose leader they concern.
const (
	brokerKill      verb = "kill the broker that leads partition"
	brokerFreeze    verb = "freeze the broker that leads partition"
	brokerCut       verb = "cut off the broker that leads partition"
	replicaHold     verb = "hold the replication of a follower of partition"
	brokersKill     verb = "kill two brokers, of which one leads partition"
	brokersFreeze   verb = "freeze two brokers, of which one leads partition"
	coordinatorKill verb = "kill the broker that coordinates the transactional id"
	replicasFreeze  verb = "freeze the followers of partition"
	controllerEnd   verb = "kill the controller"
	brokersHeal     verb = "mend the brokers and their connections"
	brokersInSync   verb = "await that all replicas are in sync"
	rollBrokers     verb = "restart the brokers one by one"
	moveReplicas    verb = "reassign the partitions and back"
	moveLeaders     verb = "move the leaders"
	copyDisk        verb = "copy the disk of a follower of partition"
	electOlder      verb = "put the disk back and elect that broker in" // arg is the topic, or both with a comma
	awaitReport     verb = "await the report of the loss"
)

// clusterDeeds returns how to perform them.
func (b *kafkaBus) clusterDeeds() map[verb]func(context.Context, act) error {
	c := b.cluster
	leader := func(do func(n int) error) func(context.Context, act) error {
		return func(ctx context.Context, a act) error { return do(b.leader(ctx, a.n)) }
	}
	return map[verb]func(context.Context, act) error{
		brokerKill:   leader(func(n int) error { return c.Brokers[n].Kill() }),
		brokerFreeze: leader(func(n int) error { return c.Brokers[n].Freeze() }),
		brokerCut:    leader(func(n int) error { c.CutOff(n); return nil }),
		replicaHold:  leader(func(n int) error { c.HoldBack(b.next(n)); return nil }),
		brokersKill: leader(func(n int) error {
			return errors.Join(c.Brokers[n].Kill(), c.Brokers[b.next(n)].Kill())
		}),
		brokersFreeze: leader(func(n int) error {
			return errors.Join(c.Brokers[n].Freeze(), c.Brokers[b.next(n)].Freeze())
		}),
		coordinatorKill: func(ctx context.Context, _ act) error {
			return c.Brokers[c.Leader(ctx, "__transaction_state", 0)].Kill()
		},
		replicasFreeze: leader(func(n int) error {
			return errors.Join(c.Brokers[b.next(n)].Freeze(), c.Brokers[b.next(b.next(n))].Freeze())
		}),
		controllerEnd: func(context.Context, act) error { return c.Controller.Kill() },
		brokersHeal:   func(ctx context.Context, _ act) error { return b.heal(ctx) },
		brokersInSync: func(ctx context.Context, _ act) error { return c.AwaitInSync(ctx) },
		rollBrokers:   func(ctx context.Context, _ act) error { return b.roll(ctx) },
		moveReplicas:  func(ctx context.Context, a act) error { return b.reassign(ctx, a.n) },
		moveLeaders:   func(ctx context.Context, a act) error { return b.moveLeaders(ctx, a.n) },
		copyDisk:      func(ctx context.Context, a act) error { return b.copyDisk(ctx, b.next(b.leader(ctx, a.n))) },
		electOlder:    func(ctx context.Context, a act) error { return b.electOlder(ctx, strings.Split(a.arg, ",")) },
		awaitReport:   func(ctx context.Context, _ act) error { return b.awaitReport(ctx) },
	}
}

// leader returns the broker that leads a partition of the event topic.
func (b *kafkaBus) leader(ctx context.Context, partition int) int {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	return b.cluster.Leader(ctx, topicName, partition%b.world.settings.kafka.partitions)
}

// next returns another broker.
func (b *kafkaBus) next(n int) int { return (n + 1) % len(b.cluster.Brokers) }

// heal ends all faults of the processes and of the connections between them.
func (b *kafkaBus) heal(ctx context.Context) error {
	b.cluster.Connect()
	return errors.Join(b.cluster.Thaw(), b.cluster.Start(ctx))
}

// mend is [bus]'s.
func (b *kafkaBus) mend(ctx context.Context) error {
	if b.cluster == nil || b.closed {
		return nil
	}
	return errors.Join(b.heal(ctx), b.cluster.AwaitInSync(ctx))
}

// roll restarts the brokers one after the other, as an upgrade does: each is in sync before the
// next one ends.
func (b *kafkaBus) roll(ctx context.Context) error {
	for _, broker := range b.cluster.Brokers {
		if err := errors.Join(broker.Stop(), broker.Start(ctx), b.cluster.AwaitInSync(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// reassign takes one replica of each partition away and brings it back, which copies it.
func (b *kafkaBus) reassign(ctx context.Context, without int) error {
	n := without % len(b.cluster.Brokers)
	others := []int{b.next(n), b.next(b.next(n))}
	for _, replicas := range [][]int{others, {n, others[0], others[1]}} {
		for _, topic := range []string{topicName, checkpointName} {
			if err := b.assign(ctx, topic, replicas); err != nil {
				return err
			}
		}
		if err := b.cluster.AwaitInSync(ctx); err != nil {
			return err
		}
	}
	return nil
}

// assign reassigns a topic, which a forwarder may not have created yet.
func (b *kafkaBus) assign(ctx context.Context, topic string, replicas []int) error {
	return b.manage(ctx, topic, "is reassigned", func(ctx context.Context) error { return b.cluster.Reassign(ctx, topic, replicas...) })
}

// manage repeats a request about a topic until it succeeds, or until the topic doesn't exist.
func (b *kafkaBus) manage(ctx context.Context, topic, what string, do func(context.Context) error) error {
	return harness.Eventually(ctx, limit, "the topic "+topic+" "+what, func(ctx context.Context) error {
		if _, err := b.main().Partitions(ctx, topic); errors.Is(err, harness.ErrNoTopic) {
			return nil
		}
		return do(ctx)
	})
}

// moveLeaders makes one broker the leader of all partitions.
func (b *kafkaBus) moveLeaders(ctx context.Context, to int) error {
	n := to % len(b.cluster.Brokers)
	for _, topic := range []string{topicName, checkpointName} {
		if err := b.assign(ctx, topic, []int{n, b.next(n), b.next(b.next(n))}); err != nil {
			return err
		}
		if err := b.manage(ctx, topic, "has other leaders", func(ctx context.Context) error { return b.cluster.ElectPreferred(ctx, topic) }); err != nil {
			return err
		}
	}
	return nil
}

// copyDisk copies the disk of a broker, like a backup. The broker is down meanwhile.
func (b *kafkaBus) copyDisk(ctx context.Context, n int) error {
	clear(b.older)
	if has, err := b.world.awaitStored(ctx, "there is something to copy"); !has {
		return err
	}
	b.older[n] = filepath.Join(b.world.dir, "disk")
	broker := b.cluster.Brokers[n]
	return errors.Join(broker.Kill(), broker.CopyData(b.older[n]), broker.Start(ctx))
}

// electOlder puts the disk of a broker back to its copy, and makes that broker the leader of the
// topics by an unclean election: all records since the copy are lost. The forwarders are frozen
// until it is known what was lost.
func (b *kafkaBus) electOlder(ctx context.Context, names []string) error {
	w := b.world
	if len(b.older) == 0 {
		return nil // there was nothing to copy
	}
	acknowledged := b.acknowledged(ctx, w.nodes[0])
	for _, n := range w.nodes {
		n.Signal(syscall.SIGSTOP)
		defer n.Signal(syscall.SIGCONT)
	}
	if err := w.quiet(ctx); err != nil {
		return err
	}
	_, kept, err := b.main().Ends(ctx)
	if err != nil {
		return err
	}
	all, _, err := b.All()
	if err != nil {
		return err
	}
	const unclean = "unclean.leader.election.enable"
	for _, name := range names {
		if err := b.cluster.Configure(ctx, name, unclean, "true"); err != nil {
			return err
		}
	}
	for n := range b.older {
		if err := b.endOutOfSync(ctx, n); err != nil {
			return err
		}
	}
	for n, copied := range b.older {
		older := b.cluster.Brokers[n]
		if err := older.PutBackData(copied); err != nil {
			return err
		}
		ends := slices.Clone(kept)
		if slices.Contains(names, topicName) {
			if ends, err = endsIn(older.Data(), kept); err != nil {
				return err
			}
		}
		to, err := b.main().Rewind(ctx, ends, limit)
		if err != nil {
			return err
		}
		from := map[int]uint64{}
		for p, end := range ends {
			from[p] = uint64(end)
		}
		w.loseEnds(all, topicName, from, to)
		b.toReport = b.lostObjects(acknowledged)
		if err := older.Start(ctx); err != nil {
			return err
		}
		if err := b.awaitLeader(ctx, n, names); err != nil {
			return err
		}
		kept = ends
	}
	for _, name := range names {
		if err := b.cluster.Configure(ctx, name, unclean, ""); err != nil {
			return err
		}
	}
	if err := b.mend(ctx); err != nil {
		return err
	}
	return harness.Eventually(ctx, limit, "the topic ends where the older disk ends", func(ctx context.Context) error {
		_, is, err := b.main().Ends(ctx)
		if err == nil && !slices.Equal(is, kept) {
			err = fmt.Errorf("it should end at %v, the brokers say %v", kept, is)
		}
		return err
	})
}

// endOutOfSync kills a broker, and the others once its replicas aren't in sync any more. Otherwise the
// controller could elect it in an orderly way, for any topic.
func (b *kafkaBus) endOutOfSync(ctx context.Context, n int) error {
	if err := b.cluster.Brokers[n].Kill(); err != nil {
		return err
	}
	err := harness.Eventually(ctx, limit, "its replicas aren't in sync", func(ctx context.Context) error {
		all, err := b.cluster.Describe(ctx)
		for _, p := range all {
			if slices.Contains(p.InSync, n) {
				err = errors.Join(err, fmt.Errorf("%+v", p))
			}
		}
		return err
	})
	for _, broker := range b.cluster.Brokers {
		err = errors.Join(err, broker.Kill())
	}
	return err
}

// awaitLeader waits until a broker leads all partitions of the topics.
func (b *kafkaBus) awaitLeader(ctx context.Context, n int, names []string) error {
	return harness.Eventually(ctx, limit, "the broker with the older disk leads", func(ctx context.Context) error {
		all, err := b.cluster.Describe(ctx, names...)
		for _, p := range all {
			if p.Leader != n {
				err = errors.Join(err, fmt.Errorf("%+v", p))
			}
		}
		return err
	})
}

// endsIn returns where the partitions of the event topic end on a disk, if that is less than
// before.
func endsIn(data string, before []int64) ([]int64, error) {
	ends := make([]int64, len(before)) // a topic that is not on the disk is empty
	found, err := cutTopic(data, topicName, 0)
	for p, end := range maps.All(found) {
		if p < len(ends) {
			ends[p] = min(before[p], end)
		}
	}
	return ends, err
}

// acknowledged returns messages that a running forwarder has seen acknowledged, none if that isn't
// known. It notes which losses the forwarders have reported so far.
func (b *kafkaBus) acknowledged(ctx context.Context, n *node) (all []harness.Received) {
	_ = harness.Eventually(ctx, feltLimit, "nothing is in flight", func(ctx context.Context) (err error) {
		if all, _, err = b.All(); err != nil {
			return err
		}
		b.reported = b.world.losses(ctx)
		flying, err := n.Metric(ctx, "kuberelay_kafka_in_flight")
		if err == nil && flying > 0 {
			err = fmt.Errorf("%.0f are", flying)
		}
		if err != nil {
			all = nil
		}
		return err
	})
	return all
}

// lostObjects returns the number of objects that existed in their last event, which was acknowledged
// and is lost.
func (b *kafkaBus) lostObjects(acknowledged []harness.Received) (objects int) {
	last := map[string]harness.Received{}
	for _, m := range acknowledged {
		if m.Topic == topicName && !isMarker(m) {
			last[m.Subject] = m
		}
	}
	for _, m := range last {
		if b.world.lost[m.Place] && m.Body != nil && !gone(m) {
			objects++
		}
	}
	return objects
}

// awaitReport waits until a forwarder says that the bus has lost events. It fails if a forwarder that
// ran all the time stays silent.
func (b *kafkaBus) awaitReport(ctx context.Context) error {
	if b.toReport == 0 {
		return nil
	}
	if err := b.world.awaitTold(ctx, b.reported); err != nil {
		return &wrongError{[]string{fmt.Sprintf("the last events of %d objects are lost: %v", b.toReport, err)}}
	}
	return nil
}

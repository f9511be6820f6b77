package torture

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// The actions on a cluster of Kafka brokers. n chooses the partition whose leader they affect.
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
	moveLeaders     verb = "move the partition leaders"
	copyDisk        verb = "copy the disk of a follower of partition"
	electOlder      verb = "restore the disk of a broker and elect it in" // arg is the topic, or both separated by a comma
	electBehind     verb = "end all brokers and elect a lagging one in"   // n is the broker, arg is as above
	awaitReport     verb = "await the report of the loss"
)

// clusterActions returns the functions that perform these actions.
func (b *kafkaBus) clusterActions() map[verb]func(context.Context, act) error {
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
		rollBrokers:   func(ctx context.Context, a act) error { return b.roll(ctx, a.arg, a.n) },
		moveReplicas:  func(ctx context.Context, a act) error { return b.reassign(ctx, a.n) },
		moveLeaders:   func(ctx context.Context, a act) error { return b.moveLeaders(ctx, a.n) },
		copyDisk:      func(ctx context.Context, a act) error { return b.copyDisk(ctx, b.next(b.leader(ctx, a.n))) },
		electOlder:    func(ctx context.Context, a act) error { return b.electOlder(ctx, strings.Split(a.arg, ",")) },
		electBehind: func(ctx context.Context, a act) error {
			b.older = map[int]string{a.n: ""}
			return b.electOlder(ctx, strings.Split(a.arg, ","))
		},
		awaitReport: func(ctx context.Context, _ act) error { return b.awaitReport(ctx) },
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

// mend implements [bus].
func (b *kafkaBus) mend(ctx context.Context) error {
	if b.cluster == nil || b.closed {
		return nil
	}
	return errors.Join(b.heal(ctx), b.cluster.AwaitInSync(ctx))
}

// roll restarts the brokers one after the other, as an upgrade does: each broker is in sync before the
// next one ends. If only isn't 0, it restarts only that broker, counted from 1. An upgrade restarts
// the controller after the last broker.
func (b *kafkaBus) roll(ctx context.Context, how string, only int) error {
	for n, broker := range b.cluster.Brokers {
		if only > 0 && n != only-1 {
			continue
		}
		before, err := b.cluster.MetadataVersion(ctx, n)
		if err == nil {
			err = b.restart(ctx, broker, how)
		}
		if err != nil {
			return err
		}
		after, err := b.cluster.MetadataVersion(ctx, n)
		if err == nil && (after > before) != (how == upgraded) {
			err = fmt.Errorf("broker %d knew metadata.version %d and knows %d", n, before, after)
		}
		if err == nil && how == upgraded && n == len(b.cluster.Brokers)-1 {
			err = b.restart(ctx, b.cluster.Controller, how)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// restart restarts a broker or the controller, and waits until all brokers are in sync.
func (b *kafkaBus) restart(ctx context.Context, broker *kafkabroker.Broker, how string) error {
	if how == upgraded {
		if err := broker.Upgrade(ctx); err != nil {
			return err
		}
	}
	return errors.Join(broker.Stop(), broker.Start(ctx), b.cluster.AwaitInSync(ctx))
}

// reassign removes one replica of each partition and adds it again, which copies the partition.
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
	return poll.Until(ctx, limit, "the topic "+topic+" "+what, func(ctx context.Context) error {
		if _, err := b.main().Partitions(ctx, topic); errors.Is(err, harness.ErrNoTopic) {
			return nil
		}
		return do(ctx)
	})
}

// moveLeaders makes one broker the leader of all partitions of both topics.
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

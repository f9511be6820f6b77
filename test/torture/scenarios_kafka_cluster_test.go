package torture

import (
	"context"
	"fmt"
)

// The scenarios on a cluster of Kafka brokers
var kafkaClusterScenarios = []scenario{
	{
		name: "a leader is cut off, and replicas are missing (Kafka cluster)", bugs: []string{"acknowledged-by-one"},
		settings: onCluster(usualOnKafka()), play: playMinority,
	},
	{
		name: "a replica that is behind is elected (Kafka cluster)", bugs: []string{"lost-quietly"},
		settings: losing(onCluster(usualOnKafka())), play: playElectOlder,
	},
	{
		name: "a leader acknowledges alone and is lost (Kafka cluster)", bugs: []string{"only-what-survived"},
		settings: alone(losing(onCluster(usualOnKafka()))), play: playAlone,
	},
	{
		name:     "the brokers of a cluster are upgraded one by one (Kafka cluster)",
		settings: upgradedLater(onCluster(usualOnKafka())), play: playUpgrade(rollBrokers),
	},
}

func onCluster(s settings) settings {
	s.cluster = 3
	return s
}

// playMinority first changes an object while the leader of its partition is cut off from the other
// brokers, which elect another leader. Then it changes the object while the leader has no follower
// in sync.
func playMinority(s *script) {
	s.create("changed", "quiet")
	s.begin(0)
	s.do(act{do: moveLeaders, n: 0})
	s.ledBy("one broker", func(p int) bool { return p == 0 })
	s.do(act{do: brokerCut})
	s.change(put, at("changed"))
	s.ledBy("another broker", func(p int) bool { return p > 0 })
	s.idle(0)
	s.do(act{do: brokersHeal})
	s.do(act{do: brokersInSync})
	s.idle(0)

	s.do(act{do: moveLeaders, n: 0})
	s.ledBy("one broker", func(p int) bool { return p == 0 })
	s.change(put, at("changed")) // the forwarder learns who leads
	s.idle(0)
	s.do(act{do: replicasFreeze})
	s.change(put, at("changed"))
	s.do(act{do: awaitLog, arg: busTrouble})
	s.leadsAlone()
	s.do(act{do: awaitLog, arg: "batch not acknowledged"})
	s.change(put, at("changed"))
	s.do(act{do: awaitLog, arg: busTrouble})
	s.do(act{do: brokersHeal})
	s.do(act{do: brokersInSync})
	s.idle(0)
}

// alone sets min.insync.replicas=1 on all topics.
func alone(s settings) settings {
	s.kafka.alone = true
	return s
}

// playAlone loses a leader that acknowledged events while no follower was in sync. A follower becomes
// the leader by an unclean election. The old leader returns as its follower and drops these events.
func playAlone(s *script) {
	s.create("kept", "changed", "deleted")
	s.begin(0)
	s.logged(0, 1, "the bus can lose events that it acknowledged")
	s.do(act{do: moveLeaders, n: 0})
	s.ledBy("one broker", func(p int) bool { return p == 0 })
	s.change(put, at("changed")) // the forwarder learns who leads
	s.idle(0)
	s.do(act{do: replicasFreeze})
	s.leadsAlone()
	s.change(put, at("changed"))
	s.change(remove, at("deleted"))
	s.create("lost")
	s.onBus(at("lost"), 1)
	s.idle(0) // all events are acknowledged
	s.do(act{do: electBehind, n: 1, arg: topicName})
	s.step(func() error {
		if got, want := s.bus.(*kafkaBus).toReport, 2; got != want { // changed and lost
			return fmt.Errorf("the acknowledged last events of %d objects are lost, want %d", got, want)
		}
		return nil
	})
	s.do(act{do: awaitReport})
	if !s.planted() {
		s.logged(0, 1, "partition does not match the checkpoint")
	}
	s.idle(0)
}

// playElectOlder makes the brokers lose acknowledged events: a replica that is behind becomes the
// leader. The forwarder is idle, so only a refresh of the checkpoint finds the loss.
func playElectOlder(s *script) {
	s.create("kept", "changed", "deleted")
	s.begin(0)
	s.do(act{do: copyDisk})
	s.do(act{do: brokersInSync})
	s.change(put, at("changed"))
	s.change(remove, at("deleted"))
	s.create("lost")
	s.idle(0)
	s.do(act{do: electOlder, arg: topicName})
	s.do(act{do: awaitReport})
	s.idle(0)
}

// leadsAlone waits until no leader has a follower in sync.
func (s *script) leadsAlone() {
	s.until("the leader is alone", func(ctx context.Context) error {
		all, err := s.bus.(*kafkaBus).cluster.Describe(ctx, topicName)
		for _, p := range all {
			if len(p.InSync) > 1 {
				err = fmt.Errorf("%+v", p)
			}
		}
		return err
	})
}

// ledBy waits until is returns true for the leaders of all partitions.
func (s *script) ledBy(what string, is func(broker int) bool) {
	s.until(what+" leads all partitions", func(ctx context.Context) error {
		all, err := s.bus.(*kafkaBus).cluster.Describe(ctx, topicName)
		for _, p := range all {
			if p.Leader < 0 || !is(p.Leader) {
				err = fmt.Errorf("%+v", p)
			}
		}
		return err
	})
}

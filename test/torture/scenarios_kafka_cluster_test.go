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
		name:     "the brokers of a cluster are upgraded one by one (Kafka cluster)",
		settings: upgradedLater(onCluster(usualOnKafka())), play: playUpgrade(rollBrokers),
	},
}

func onCluster(s settings) settings {
	s.cluster = 3
	return s
}

// playMinority changes an object while the leader of its partition is cut off from the other
// brokers, which elect another one, and while the leader has no other replica.
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
	s.until("the leader is alone", func(ctx context.Context) error {
		all, err := s.bus.(*kafkaBus).cluster.Describe(ctx, topicName)
		for _, p := range all {
			if len(p.InSync) > 1 {
				err = fmt.Errorf("%+v", p)
			}
		}
		return err
	})
	s.do(act{do: awaitLog, arg: "batch not acknowledged"})
	s.change(put, at("changed"))
	s.do(act{do: awaitLog, arg: busTrouble})
	s.do(act{do: brokersHeal})
	s.do(act{do: brokersInSync})
	s.idle(0)
}

// playElectOlder makes the brokers lose acknowledged events: a replica that is behind becomes the
// leader. The forwarder is idle, so only a refresh of the checkpoint finds it.
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

// ledBy waits until the leaders of all partitions are as wanted.
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

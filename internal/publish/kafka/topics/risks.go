package topics

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// Risks returns the topic settings that allow the loss of acknowledged records. brokers is the
// number of brokers that respond, or 0 if unknown. If it is 1 and a topic has several replicas, the
// other brokers are down. Risks ignores settings that could not be read.
func Risks(topics []broker.Topic, brokers int) (all []publish.Risk) {
	add := func(r publish.Risk, is func(broker.Topic) bool) {
		for _, t := range topics {
			if is(t) {
				r.Of = append(r.Of, t.Name)
			}
		}
		if slices.Sort(r.Of); len(r.Of) > 0 {
			all = append(all, r)
		}
	}
	single := func(t broker.Topic) bool { return t.Replication == 1 }
	if brokers == 1 && !slices.ContainsFunc(topics, func(t broker.Topic) bool { return t.Replication > 1 }) {
		add(publish.Risk{
			Setting: "replication factor 1", Single: true,
			Loses: "there is one broker, so its disk has the only copy, and a power failure loses records that the broker acknowledged but did not flush",
			Fix:   "if that matters, use three brokers, and topics with three replicas and min.insync.replicas=2",
		}, single)
		return all
	}
	add(publish.Risk{
		Setting: "replication factor 1",
		Loses:   "a broker that crashes or loses its disk loses acknowledged records, and no other broker has a copy",
		Fix:     "give the topics three replicas with kafka-reassign-partitions.sh, and set KUBERELAY_KAFKA_REPLICATION=3 for new ones",
	}, single)
	add(publish.Risk{
		Setting: "min.insync.replicas=1",
		Loses:   "while its followers are behind, a leader acknowledges records alone, and they are lost if it fails",
		Fix:     "run for each topic: kafka-configs.sh --alter --entity-type topics --entity-name TOPIC --add-config min.insync.replicas=2",
	}, func(t broker.Topic) bool { return t.Replication > 1 && t.MinInsyncReplicas == 1 })
	add(publish.Risk{
		Setting: "unclean.leader.election.enable=true",
		Loses:   "a replica that lacks acknowledged records can become the leader, and they are lost on every broker",
		Fix:     "run for each topic: kafka-configs.sh --alter --entity-type topics --entity-name TOPIC --add-config unclean.leader.election.enable=false",
	}, func(t broker.Topic) bool { return t.Replication > 1 && t.UncleanElection })
	return all
}

// Risks returns the risks of the topics that exist, and of those that the forwarder would create.
func (i Inspection) Risks() []publish.Risk {
	var topics []broker.Topic
	for _, t := range i.All() {
		if t.Err == nil {
			topics = append(topics, t.Topic)
		}
	}
	return Risks(topics, i.Brokers)
}

// Risks returns the risks of the topics that were opened.
func (t *Topics) Risks() []publish.Risk {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Risks(slices.Collect(maps.Values(t.seen)), t.brokers)
}

// note stores a topic for [Topics.Risks].
func (t *Topics) note(ctx context.Context, of broker.Topic) {
	n, _ := t.client.Brokers(ctx) // from metadata that was just read
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen[of.Name], t.brokers = of, cmp.Or(n, t.brokers)
}

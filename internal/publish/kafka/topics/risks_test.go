package topics

import (
	"slices"
	"testing"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

func TestRisks(t *testing.T) {
	safe := broker.Topic{Name: "safe", Replication: 3, MinInsyncReplicas: 2}
	with := func(change func(*broker.Topic)) broker.Topic {
		other := safe
		other.Name = "other"
		change(&other)
		return other
	}
	const single, minimum, unclean = "replication factor 1", "min.insync.replicas=1", "unclean.leader.election.enable=true"
	for name, c := range map[string]struct {
		topic   broker.Topic
		brokers int
		want    []string
	}{
		"safe":               {safe, 3, nil},
		"one replica":        {with(func(t *broker.Topic) { t.Replication, t.MinInsyncReplicas = 1, 1 }), 3, []string{single}},
		"brokers unknown":    {with(func(t *broker.Topic) { t.Replication = 1 }), 0, []string{single}},
		"one broker":         {with(func(t *broker.Topic) { t.Replication, t.MinInsyncReplicas, t.UncleanElection = 1, 1, true }), 1, []string{single}},
		"one in sync":        {with(func(t *broker.Topic) { t.MinInsyncReplicas = 1 }), 3, []string{minimum}},
		"unreadable":         {with(func(t *broker.Topic) { t.MinInsyncReplicas = 0 }), 3, nil},
		"unclean":            {with(func(t *broker.Topic) { t.UncleanElection = true }), 3, []string{unclean}},
		"unclean and single": {with(func(t *broker.Topic) { t.Replication, t.UncleanElection = 1, true }), 3, []string{single}},
		"one broker left":    {with(func(t *broker.Topic) { t.MinInsyncReplicas, t.UncleanElection = 1, true }), 1, []string{minimum, unclean}},
		"one left, single":   {with(func(t *broker.Topic) { t.Replication, t.MinInsyncReplicas = 1, 1 }), 1, []string{single}},
		"both":               {with(func(t *broker.Topic) { t.MinInsyncReplicas, t.UncleanElection = 1, true }), 3, []string{minimum, unclean}},
	} {
		var got []string
		alone := name == "one broker"
		topics := []broker.Topic{safe, c.topic}
		if alone {
			topics = topics[1:] // one broker cannot have topics with several replicas
		}
		for _, r := range Risks(topics, c.brokers) {
			if got = append(got, r.Setting); !slices.Equal(r.Of, []string{"other"}) && len(c.want) > 0 {
				t.Errorf("%s: %s of %q", name, r.Setting, r.Of)
			}
			if r.Fix == "" || r.Loses == "" || r.Single != alone {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

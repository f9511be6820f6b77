package kafkacluster_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkacluster"
)

const topic = "topic"

// TestFaultsOfAKafkaCluster_Slow injects each fault of a cluster and verifies that acknowledged records
// survive all of them, except an unclean election.
func TestFaultsOfAKafkaCluster_Slow(t *testing.T) {
	c, err := kafkacluster.Start(t, kafkacluster.Options{Size: 3})
	must(t, err)
	must(t, c.CreateTopic(t.Context(), topic, 1, nil))
	must(t, c.AwaitInSync(t.Context()))
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.ProduceRequestTimeout(time.Second))
	must(t, err)
	defer client.Close()
	produce := func(limit time.Duration, value string) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr()
	}
	led := func() int { return c.Leader(t.Context(), topic, 0) }
	elected := func(not int) {
		t.Helper()
		await(t, "another leader", func() bool {
			all, err := c.Describe(t.Context(), topic)
			return err == nil && all[0].Leader >= 0 && all[0].Leader != not
		})
	}
	healed := func() {
		t.Helper()
		c.Connect()
		must(t, c.Start(t.Context()))
		must(t, c.AwaitInSync(t.Context()))
	}
	must(t, produce(limit, "first"))

	leader := led()
	must(t, c.Brokers[leader].Kill())
	elected(leader)
	must(t, produce(limit, "leader killed"))
	healed()

	leader = led()
	c.CutOff(leader)
	elected(leader)
	must(t, produce(limit, "leader cut off"))
	healed()

	follower := (led() + 1) % 3
	c.HoldBack(follower)
	must(t, produce(limit, "follower lags"))
	await(t, "a lagging follower leaves the in-sync replicas", func() bool {
		all, err := c.Describe(t.Context(), topic)
		return err == nil && len(all[0].InSync) == 2
	})
	healed()

	must(t, c.Controller.Kill())
	must(t, produce(limit, "no controller"))
	healed()

	must(t, c.Reassign(t.Context(), topic, (led()+1)%3, (led()+2)%3))
	await(t, "the reassignment is complete", func() bool {
		all, err := c.Describe(t.Context(), topic)
		return err == nil && len(all[0].Replicas) == 2 && len(all[0].InSync) == 2
	})
	must(t, produce(limit, "reassigned"))
	must(t, c.Reassign(t.Context(), topic, 2, 1, 0))
	await(t, "the reassignment back is complete", func() bool {
		all, err := c.Describe(t.Context(), topic)
		return err == nil && len(all[0].Replicas) == 3 && len(all[0].InSync) == 3
	})
	must(t, c.ElectPreferred(t.Context(), topic))
	await(t, "the preferred leader", func() bool { return led() == 2 })

	// An unclean election makes a replica with an old disk the leader.
	const behind = 0
	must(t, c.Brokers[behind].Kill())
	copied := filepath.Join(t.TempDir(), "copy")
	must(t, c.Brokers[behind].CopyData(copied))
	must(t, produce(limit, "lost"))
	healed()
	must(t, c.Configure(t.Context(), topic, "unclean.leader.election.enable", "true"))
	for _, b := range c.Brokers {
		must(t, b.Kill())
	}
	must(t, c.Brokers[behind].PutBackData(copied))
	must(t, c.Brokers[behind].Start(t.Context()))
	await(t, "the old replica leads", func() bool { return led() == behind })
	if err := produce(time.Second, "not enough"); !errors.Is(err, kerr.NotEnoughReplicas) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, kgo.ErrRecordTimeout) {
		t.Errorf("one of three replicas: got error %v, want %v", err, kerr.NotEnoughReplicas)
	}
	must(t, c.Configure(t.Context(), topic, "unclean.leader.election.enable", ""))
	healed()
	must(t, produce(limit, "last"))
	got, want := values(t, c), []string{"first", "leader killed", "leader cut off", "follower lags", "no controller", "reassigned", "last"}
	for _, w := range want {
		if !got[w] {
			t.Errorf("%q is lost, there are %v", w, got)
		}
	}
	if got["lost"] {
		t.Error("the unclean election lost nothing")
	}
}

const limit = time.Minute

// values returns the values of all records.
func values(t *testing.T, c *kafkacluster.Cluster) map[string]bool {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.ConsumeTopics(topic))
	must(t, err)
	defer client.Close()
	all := map[string]bool{}
	for !all["last"] {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		fetches := client.PollFetches(ctx)
		cancel()
		must(t, fetches.Err0())
		fetches.EachRecord(func(r *kgo.Record) { all[string(r.Value)] = true })
	}
	return all
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for over := time.After(limit); !is(); {
		select {
		case <-ticker.C:
		case <-over:
			t.Fatalf("%s: not within %s", what, limit)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

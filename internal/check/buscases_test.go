package check

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/internal/status"
)

// busCases returns the cases for the bus and for its writers.
func busCases() []decision {
	const k = config.SinkKafka
	topic := func(change func(*kafka.TopicInspection)) func(*Facts) {
		return func(f *Facts) { change(&f.Kafka.Topics[0]) }
	}
	missing := func(f *Facts) {
		for _, t := range []*kafka.TopicInspection{&f.Kafka.Topics[0], &f.Kafka.Checkpoint} {
			*t = kafka.TopicInspection{Name: t.Name, Inspection: broker.Inspection{Missing: true}}
		}
	}
	before := func(change func(*Facts)) func(*Facts) {
		return func(f *Facts) { f.Pre = true; change(f) }
	}
	builtIn := func(change func(*Facts)) func(*Facts) {
		return func(f *Facts) { f.Settings.NATS.URLs = nil; change(f) }
	}
	as := func(*Facts) {}
	noStream := func(f *Facts) { f.NATS.Stream = nil }
	other := event.Claim{UID: "other", Claimed: noon}
	all := []decision{
		{"bus-reachable", "down", "", func(f *Facts) { f.BusErr = errFault }, Failed, "KUBERELAY_NATS_URL"},
		{"bus-reachable", "down", k, func(f *Facts) { f.BusErr = errFault }, Failed, "KUBERELAY_KAFKA_BROKERS"},
		{"bus-reachable", "built in, down", "", builtIn(func(f *Facts) { f.BusErr = errFault }), Failed, "KUBERELAY_NATS_LISTEN"},
		{"bus-reachable", "built in, before", "", before(builtIn(as)), Skipped, "starts with the forwarder"},
		{"bus-reachable", "refuses", "", func(f *Facts) { f.BusErr = fmt.Errorf("%w: no", nats.ErrMisconfigured) }, OK, "responds"},
		{"bus-reachable", "stdout", config.SinkStdout, as, Skipped, "stdout"},
		{"bus-accepts", "refuses", "", func(f *Facts) { f.BusErr = fmt.Errorf("%w: no", nats.ErrMisconfigured) }, Failed, "nats is misconfigured: no"},
		{"bus-accepts", "refuses", k, func(f *Facts) { f.BusErr = fmt.Errorf("%w: no", kafka.ErrMisconfigured) }, Failed, "kafka is misconfigured: no"},
		{"bus-accepts", "down", "", func(f *Facts) { f.BusErr = errFault }, Skipped, "cannot be queried"},
		{"bus-accepts", "stdout", config.SinkStdout, as, Skipped, "stdout"},
		{"bus-clock", "behind", "", clock(func(f *Facts) **time.Duration { return &f.NATS.Skew }, -time.Minute), Warning, "1m0s behind"},
		{"bus-clock", "unknown", "", func(f *Facts) { f.NATS.Skew = nil }, Skipped, "does not report"},

		{"nats-jetstream", "disabled", "", func(f *Facts) { f.NATS.JetStream = errFault }, Failed, "enable JetStream"},
		{"nats-jetstream", "too many streams", "", func(f *Facts) {
			f.NATS.Stream, f.NATS.Account.Streams, f.NATS.Account.Limits.MaxStreams = nil, 4, 4
		}, Failed, "has 4 streams and may have 4"},
		{"nats-jetstream", "enough streams", "", func(f *Facts) { f.NATS.Account.Streams, f.NATS.Account.Limits.MaxStreams = 4, 4 }, OK, "enabled"},
		{"nats-permissions", "denied", "", func(f *Facts) { f.NATS.Denied = []string{"publish a.>", "subscribe b"} }, Failed, "publish a.>, subscribe b"},
		{"nats-permissions", "unknown", "", func(f *Facts) { f.NATS.DeniedErr = errFault }, Skipped, "$SYS.REQ.USER.INFO"},
		{"nats-permissions", "built in", "", builtIn(as), Skipped, "its forwarder all permissions"},
		{"nats-stream", "none before", "", before(noStream), OK, "the forwarder creates it"},
		{"nats-stream", "replicas", "", before(func(f *Facts) {
			f.NATS.Stream, f.NATS.Clustered, f.Settings.NATS.Replicas = nil, false, 3
		}), Failed, "KUBERELAY_NATS_REPLICAS=1"},
		{"nats-stream", "replicas in a cluster", "", before(func(f *Facts) {
			f.NATS.Stream, f.NATS.Clustered, f.Settings.NATS.Replicas = nil, true, 3
		}), OK, "the forwarder creates it"},
		{"nats-stream", "none", "", noStream, Failed, "does not exist"},
		{"nats-stream", "overlap", "", before(func(f *Facts) { f.NATS.Stream, f.NATS.Overlap = nil, "OTHER" }), Failed, "KUBERELAY_NATS_STREAM=OTHER"},
		{"nats-stream", "no leader", "", func(f *Facts) { f.NATS.StreamErr = errFault }, Failed, "nats stream info KUBERELAY"},
		{"nats-stream", "disabled", "", func(f *Facts) { f.NATS.JetStream = errFault }, Skipped, "not enabled"},
		{"nats-stream-settings", "wrong", "", func(f *Facts) { f.NATS.Settings = errFault }, Failed, "fault"},
		{"nats-stream-settings", "built in, wrong", "", builtIn(func(f *Facts) { f.NATS.Settings = errFault }), Warning, "restart"},
		{"nats-stream-settings", "none", "", noStream, Skipped, "no stream"},
		{"nats-stream-replicas", "one is away", "", func(f *Facts) { f.NATS.Stream.Cluster.Replicas[0].Offline = true }, Warning, "b (offline)"},
		{"nats-stream-replicas", "one is behind", "", func(f *Facts) {
			f.NATS.Stream.Cluster.Replicas[1] = &jetstream.PeerInfo{Name: "c", Lag: 7}
		}, Warning, "c (7 operations behind)"},
		{"nats-stream-replicas", "one copy", "", func(f *Facts) {
			f.NATS.Stream.Config.Replicas, f.NATS.Stream.Cluster.Replicas = 1, nil
		}, Warning, "--replicas=3"},
		{"nats-stream-replicas", "a single server", "", func(f *Facts) {
			f.NATS.Stream.Config.Replicas, f.NATS.Stream.Cluster = 1, &jetstream.ClusterInfo{Leader: "a"}
		}, OK, "not in a cluster"},
		{"nats-stream-replicas", "built in", "", builtIn(func(f *Facts) {
			f.NATS.Stream.Config.Replicas, f.NATS.Stream.Cluster = 1, nil
		}), OK, "every 2 minutes"},
		{"nats-stream-replicas", "one copy before", "", before(func(f *Facts) {
			f.NATS.Stream, f.NATS.Clustered, f.Settings.NATS.Replicas = nil, true, 1
		}), Warning, "num_replicas=1 (KUBERELAY): if the server crashes"},
		{"nats-stream-replicas", "three before", "", before(func(f *Facts) {
			f.NATS.Stream, f.NATS.Clustered, f.Settings.NATS.Replicas = nil, true, 3
		}), OK, "with 3 replicas"},
		{"nats-stream-replicas", "none", "", noStream, Skipped, "no stream"},
		{"nats-stream-limits", "full", "", func(f *Facts) { f.NATS.Stream.State.Bytes = 1 << 30 }, Failed, "full: 1073741824 of max_bytes=1073741824"},
		{"nats-stream-limits", "nearly full", "", func(f *Facts) { f.NATS.Stream.Config.MaxMsgs = 1100 }, Warning, "nearly full: 1000 of max_msgs=1100"},
		{"nats-max-payload", "small", "", func(f *Facts) { f.NATS.MaxPayload = 64_000 }, Warning, "max_payload is 64000 bytes"},
		{"nats-max-payload", "small in the stream", "", func(f *Facts) { f.NATS.Stream.Config.MaxMsgSize = 65_000 }, Warning, "max_msg_size is 65000 bytes"},
		{"nats-max-payload", "a large object", "", func(f *Facts) { f.Lists[0].Largest = 9 << 20 }, Warning, "an object of pods has 9437184"},
		{"nats-data-dir", "usable", "", builtIn(as), OK, "/data can be written"},
		{"nats-data-dir", "not usable", "", builtIn(func(f *Facts) { f.DataDir.Err = errFault }), Failed, "fsGroup"},
		{"nats-data-dir", "not usable before", "", before(builtIn(func(f *Facts) { f.DataDir.Err = errFault })), Skipped, "not the pod"},
		{"nats-data-dir", "full", "", builtIn(func(f *Facts) { f.DataDir.Free = 1e6 }), Failed, "has 1 MB left"},

		{"kafka-topics", "none before", k, before(missing), OK, "would create them: kuberelay"},
		{"kafka-topics", "none", k, missing, Failed, "do not exist: kuberelay"},
		{"kafka-topics", "cannot be created", k, before(topic(func(t *kafka.TopicInspection) { t.Missing, t.Create = true, errFault })), Failed, "cannot be created: fault"},
		{"kafka-topics", "no answer", k, topic(func(t *kafka.TopicInspection) { t.Err = errFault }), Failed, "cannot be looked up: fault"},
		{"kafka-topics", "no resource", k, func(f *Facts) { f.Kafka.Topics = nil }, Skipped, "template"},
		{"kafka-topics", "one of two", k, func(f *Facts) {
			f.Kafka.Topics = append(f.Kafka.Topics, kafka.TopicInspection{Name: "second", Inspection: broker.Inspection{Missing: true}})
		}, OK, "would create them: second"},
		{"kafka-topic-settings", "wrong", k, topic(func(t *kafka.TopicInspection) { t.Settings = errFault }), Failed, "fault"},
		{"kafka-topic-settings", "unreadable", k, topic(func(t *kafka.TopicInspection) { t.Unreadable = true }), Warning, "DescribeConfigs"},
		{"kafka-topic-settings", "none", k, missing, Skipped, "no topic"},
		{"kafka-checkpoint-topic", "none", k, missing, Failed, "kuberelay.checkpoint"},
		{"kafka-checkpoint-settings", "wrong", k, func(f *Facts) { f.Kafka.Checkpoint.Settings = errFault }, Failed, "fault"},
		{"kafka-permissions", "denied", k, topic(func(t *kafka.TopicInspection) { t.Denied, t.Grant = []string{"Write"}, "kafka-acls.sh" }), Failed, "Write; kafka-acls.sh"},
		{"kafka-permissions", "unknown", k, func(f *Facts) {
			f.Kafka.Topics[0].DeniedKnown, f.Kafka.Checkpoint.DeniedKnown = false, false
		}, Skipped, "do not report"},
		{"kafka-permissions", "none", k, missing, Skipped, "no topic"},
		{"kafka-replication", "one replica", k, topic(func(t *kafka.TopicInspection) { t.Topic.Replication = 1 }), Warning, "kuberelay (1 replica, min.insync.replicas 2)"},
		{"kafka-replication", "unknown settings", k, topic(func(t *kafka.TopicInspection) { t.Topic.MinInsyncReplicas = 0 }), Skipped, "cannot be read"},
		{"kafka-replication", "one in sync is enough", k, topic(func(t *kafka.TopicInspection) { t.Topic.MinInsyncReplicas = 1 }), Warning, "min.insync.replicas 1"},
		{"kafka-replication", "one broker", k, func(f *Facts) {
			f.Kafka.Topics[0].Topic.Replication, f.Kafka.Checkpoint.Topic.Replication, f.Kafka.Brokers = 1, 1, 1
		}, OK, "one broker"},
		{"kafka-replication", "one replica, one broker left", k, func(f *Facts) { // before the fix, one live broker counted as a cluster of one
			f.Kafka.Topics[0].Topic.Replication, f.Kafka.Brokers = 1, 1
		}, Warning, "kuberelay (1 replica, min.insync.replicas 2)"},
		{"kafka-replication", "one broker left", k, func(f *Facts) { // before the fix, this panicked, because there is no risk of a single broker
			f.Kafka.Topics[0].Topic.MinInsyncReplicas, f.Kafka.Brokers = 1, 1
		}, Warning, "kuberelay (3 replicas, min.insync.replicas 1)"},
		{"kafka-replication", "none", k, missing, Skipped, "no topic"},
		{"kafka-replication", "planned", k, before(func(f *Facts) {
			f.Kafka.Topics[0].Missing, f.Kafka.Topics[0].Topic.MinInsyncReplicas = true, 1
		}), Warning, "kuberelay (3 replicas, min.insync.replicas 1)"},
		{"kafka-unclean-election", "allowed", k, func(f *Facts) { f.Kafka.Checkpoint.Topic.UncleanElection = true }, Warning, "true for kuberelay.checkpoint"},
		{"kafka-unclean-election", "one replica", k, func(f *Facts) {
			f.Kafka.Topics[0].Topic.UncleanElection, f.Kafka.Topics[0].Topic.Replication = true, 1
		}, OK, "only a replica"},
		{"kafka-unclean-election", "one broker left", k, func(f *Facts) { // before the fix, one live broker counted as a cluster of one
			f.Kafka.Topics[0].Topic.UncleanElection, f.Kafka.Brokers = true, 1
		}, Warning, "true for kuberelay"},
		{"kafka-unclean-election", "unknown settings", k, topic(func(t *kafka.TopicInspection) { t.Topic.MinInsyncReplicas = 0 }), Skipped, "cannot be read"},
		{"kafka-unclean-election", "none", k, missing, Skipped, "no topic"},
		{"kafka-in-sync", "one is missing", k, topic(func(t *kafka.TopicInspection) { t.InSync = 2 }), Warning, "kuberelay (2 of 3)"},
		{"kafka-in-sync", "too few", k, topic(func(t *kafka.TopicInspection) { t.InSync = 1 }), Failed, "refuse events"},
		{"kafka-in-sync", "none", k, missing, Skipped, "no topic"},
		{"kafka-partitions", "others", k, func(f *Facts) { f.Settings.Kafka.Partitions = 4 }, Warning, "has 3 partitions"},
		{"kafka-partitions", "none", k, missing, Skipped, "no topic"},
		{"kafka-max-message-bytes", "small", k, topic(func(t *kafka.TopicInspection) { t.Topic.MaxMessageBytes = 100_000 }), Warning, "max.message.bytes is 100000 bytes"},
		{"kafka-max-message-bytes", "none", k, missing, Skipped, "no topic"},
		{"kafka-idempotence", "off", k, func(f *Facts) { f.Settings.Kafka.Idempotent = false }, Warning, "can repeat"},

		{"lease", "nobody", "", func(f *Facts) { f.Lease.Holder = "" }, Failed, "nobody holds the Lease a/kuberelay"},
		{"lease", "unreadable", "", func(f *Facts) { f.Lease.Err = errFault }, Failed, "fault"},
		{"lease", "held before", "", before(as), Warning, "pod-1 already holds the Lease a/kuberelay"},
		{"lease", "free before", "", before(func(f *Facts) { f.Lease.Holder = "" }), OK, "yet"},
		{"lease", "no election", "", func(f *Facts) { f.Settings.Leader.Election = false }, Skipped, "false"},
		{"cluster-name", "another cluster's", "", func(f *Facts) { f.NATS.Claim = other }, Failed, "KUBERELAY_CLUSTER_REPLACES=other"},
		{"cluster-name", "another cluster's", k, func(f *Facts) { f.Kafka.Claim = other }, Failed, "belongs to another cluster"},
		{"cluster-name", "a later format", "", func(f *Facts) { f.NATS.Claim.Format = 1000 }, Failed, "in format 1000"},
		{"cluster-name", "a later format, no UID", "", func(f *Facts) { f.NATS.Claim.Format, f.Server.UID = 1000, "" }, Failed, "in format 1000"},
		{"cluster-name", "replaced", "", func(f *Facts) { f.NATS.Claim, f.Settings.Event.ClusterReplaces = other, "other" }, OK, "take it over"},
		{"cluster-name", "nobody's", "", func(f *Facts) { f.NATS.Claim = event.Claim{} }, OK, "no cluster has claimed"},
		{"cluster-name", "unreadable", "", func(f *Facts) { f.NATS.ClaimErr = errFault }, Warning, "fault"},
		{"cluster-name", "no UID", "", func(f *Facts) { f.Server.UID = "" }, Skipped, uid},
		{"cluster-name", "no name", "", func(f *Facts) { f.Server.UID, f.NATS.Claim = "", event.Claim{} }, Skipped, "unknown"},
		{"another-writer", "with a lease", "", func(f *Facts) { f.Settings.Leader.Election = false }, Warning, "pod-1, holds the Lease"},
		{"another-writer", "foreign events", "", func(f *Facts) { f.Forwarder.Bus.ForeignEvents = 3 }, Warning, "repaired 3 events"},
		{"another-writer", "standby", "", func(f *Facts) { f.Forwarder.Bus.State = status.BusUnused }, Skipped, "does not use the bus"},
		{"another-writer", "no forwarder", "", func(f *Facts) { f.Forwarder = nil }, Skipped, "without a running forwarder"},
		{"another-writer", "took over", k, func(f *Facts) {
			f.Settings.Leader.Election, f.Lease.Holder, f.Forwarder = false, "", nil
			f.Writer, f.Kafka.Writer.Name, f.Kafka.Writer.Since = "a/pod-1", "b/pod-2", "now"
		}, Failed, "b/pod-2 took over the topics at now"},
		{"another-writer", "stdout", config.SinkStdout, as, Skipped, "stdout"},
		{"forwarder-status", "token not reviewed", "", func(f *Facts) { f.Forwarder, f.TokenNotReviewed, f.ForwarderErr = nil, true, errFault }, Failed, "cannot review the token: fault"},
		{"forwarder-status", "token", "", func(f *Facts) { f.Forwarder, f.TokenNeeded = nil, true }, Skipped, "--token-file"},
		{"forwarder-status", "down", "", func(f *Facts) { f.Forwarder, f.ForwarderErr = nil, errFault }, Failed, "fault"},
		{"forwarder-status", "warning", "", func(f *Facts) { f.Forwarder.Verdict = status.Verdict{Level: status.Warning, Summary: "slow"} }, Warning, "slow"},
		{"forwarder-status", "critical", "", func(f *Facts) { f.Forwarder.Verdict = status.Verdict{Level: status.Critical, Summary: "away"} }, Failed, "away"},
		{"forwarder-status", "before", "", before(as), Skipped, "not installed yet"},
		{"forwarder-version", "another", "", func(f *Facts) { f.Version = "v1.1.0" }, Warning, "v1.0.0, and this program v1.1.0"},
		{"forwarder-version", "down", "", func(f *Facts) { f.Forwarder = nil }, Skipped, "does not respond"},
	}
	return all
}

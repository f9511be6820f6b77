package check

import (
	"fmt"
	"slices"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
)

// kafkaChecks returns the checks of the topics on Kafka.
func kafkaChecks() []Check {
	return ofSink(config.SinkKafka, "Kafka", []Check{
		{ID: "kafka-topics", check: withTopics(checkTopicsExist)},
		{ID: "kafka-checkpoint-topic", check: withBus(func(f *Facts) verdict { return checkTopicsExist(f, checkpoint(f)) })},
		{ID: "kafka-topic-settings", check: withTopics(checkTopicSettings)},
		{ID: "kafka-checkpoint-settings", check: withBus(func(f *Facts) verdict { return checkTopicSettings(f, checkpoint(f)) })},
		{ID: "kafka-permissions", check: withBus(checkKafkaPermissions)},
		{ID: "kafka-replication", check: withTopicSettings(checkReplication)},
		{ID: "kafka-unclean-election", check: withTopicSettings(checkUncleanElection)},
		{ID: "kafka-in-sync", check: withBus(checkInSync)},
		{ID: "kafka-partitions", check: withTopics(checkPartitions)},
		{ID: "kafka-max-message-bytes", check: withTopics(checkMaxMessageBytes)},
		{ID: "kafka-idempotence", check: checkIdempotence},
	})
}

func checkpoint(f *Facts) []kafka.TopicInspection { return []kafka.TopicInspection{f.Kafka.Checkpoint} }

// withTopics returns a check of the event topics.
func withTopics(check func(*Facts, []kafka.TopicInspection) verdict) func(*Facts) verdict {
	return withBus(func(f *Facts) verdict {
		if len(f.Kafka.Topics) == 0 {
			return skip("KUBERELAY_KAFKA_TOPIC is a template, and no resource is known to be watched")
		}
		return check(f, f.Kafka.Topics)
	})
}

// noTopic is the reason to skip a check of topics.
const noTopic = "there is no topic to check"

// withTopicSettings returns a check of the topics that exist, and of those that the brokers would
// create. The check is skipped if there are none, or if the settings of one are unknown.
func withTopicSettings(check func(*Facts, []kafka.TopicInspection) verdict) func(*Facts) verdict {
	return withBus(func(f *Facts) verdict {
		known := slices.DeleteFunc(f.Kafka.All(), func(t kafka.TopicInspection) bool { return t.Err != nil || t.Topic.Replication <= 0 })
		switch {
		case len(known) == 0:
			return skip(noTopic)
		case slices.ContainsFunc(known, func(t kafka.TopicInspection) bool { return t.Topic.MinInsyncReplicas == 0 }):
			return skip("the settings of the topics cannot be read")
		}
		return check(f, known)
	})
}

// existing returns the topics that exist and could be inspected.
func existing(all []kafka.TopicInspection) []kafka.TopicInspection {
	return slices.DeleteFunc(slices.Clone(all), func(t kafka.TopicInspection) bool { return t.Err != nil || t.Missing })
}

func checkTopicsExist(f *Facts, all []kafka.TopicInspection) verdict {
	var missing, present []string
	for _, t := range all {
		switch {
		case t.Err != nil:
			return fail("depending on the error, grant the permission, or repair the brokers", "topic %s cannot be looked up: %v", t.Name, t.Err)
		case t.Missing && t.Create != nil:
			return fail("run the command that the message names, or create the topic (docs/install.md)", "topic %s does not exist and cannot be created: %v", t.Name, t.Create)
		case t.Missing:
			missing = append(missing, t.Name)
		default:
			present = append(present, t.Name)
		}
	}
	switch {
	case len(missing) > 0 && !f.Pre && len(present) == 0:
		return fail("check that the forwarder is running, and read its log; it creates its topics", "topics do not exist: %s", names(missing))
	case len(missing) > 0:
		return pass("topics do not exist yet, and the brokers would create them: %s", names(missing))
	}
	return pass("topics exist: %s", names(present))
}

func checkTopicSettings(_ *Facts, all []kafka.TopicInspection) verdict {
	topics, unreadable := existing(all), ""
	for _, t := range topics {
		switch {
		case t.Settings != nil:
			return fail("run the command that the message names", "%v", t.Settings)
		case t.Unreadable:
			unreadable = t.Name
		}
	}
	switch {
	case unreadable != "":
		return warn("grant DescribeConfigs on the topic", "the user may not read the settings of topic %s, so wrong settings go undetected", unreadable)
	case len(topics) == 0:
		return skip(noTopic)
	}
	return pass("cleanup policy and retention are right")
}

func checkKafkaPermissions(f *Facts) verdict {
	known, topics := false, existing(f.Kafka.All())
	for _, t := range topics {
		known = known || t.DeniedKnown
		if len(t.Denied) > 0 {
			return fail(t.Grant, "the user lacks permissions on topic %s: %s", t.Name, names(t.Denied))
		}
	}
	switch {
	case len(topics) == 0:
		return skip(noTopic)
	case !known:
		return skip("the brokers do not report the permissions of the user")
	}
	return pass("the user may read, write, and describe every topic")
}

func checkReplication(f *Facts, known []kafka.TopicInspection) verdict {
	var few []string
	for _, t := range known {
		if t.Topic.Replication < 2 || t.Topic.MinInsyncReplicas == 1 {
			few = append(few, fmt.Sprintf("%s (%d %s, min.insync.replicas %d)", t.Name, t.Topic.Replication, plural(t.Topic.Replication, "replica"), t.Topic.MinInsyncReplicas))
		}
	}
	switch risks := f.Kafka.Risks(); {
	case len(few) > 0 && len(risks) > 0 && risks[0].Single:
		return pass("topics have one replica, because there is one broker: %s", risks[0].Loses)
	case len(few) > 0:
		return warn("use three replicas and min.insync.replicas=2 (docs/install.md)", "a broker that fails can lose acknowledged events: %s", names(few))
	}
	return pass("events survive the loss of a broker")
}

func checkUncleanElection(_ *Facts, known []kafka.TopicInspection) verdict {
	var unclean []string
	for _, t := range known {
		if t.Topic.UncleanElection && t.Topic.Replication > 1 {
			unclean = append(unclean, t.Name)
		}
	}
	if len(unclean) > 0 {
		return warn("run for each topic: kafka-configs.sh --alter --entity-type topics --entity-name TOPIC --add-config unclean.leader.election.enable=false",
			"a replica that lacks acknowledged records can become the leader: unclean.leader.election.enable is true for %s", names(unclean))
	}
	return pass("only a replica that has every acknowledged record can become the leader")
}

func checkInSync(f *Facts) verdict {
	var short []string
	topics := existing(f.Kafka.All())
	for _, t := range topics {
		if t.InSync < t.Topic.Replication {
			short = append(short, fmt.Sprintf("%s (%d of %d)", t.Name, t.InSync, t.Topic.Replication))
		}
		if t.Topic.MinInsyncReplicas > t.InSync {
			return fail("repair the brokers", "topic %s has a partition with %d in-sync replicas, and min.insync.replicas is %d, so the brokers refuse events", t.Name, t.InSync, t.Topic.MinInsyncReplicas)
		}
	}
	switch {
	case len(topics) == 0:
		return skip(noTopic)
	case len(short) > 0:
		return warn("repair the brokers", "partitions have fewer in-sync replicas than replicas: %s", names(short))
	}
	return pass("all replicas are in sync")
}

func checkPartitions(f *Facts, all []kafka.TopicInspection) verdict {
	want, topics := f.Settings.Kafka.Partitions, existing(all)
	for _, t := range topics {
		if t.Topic.Partitions != want {
			return warn("set KUBERELAY_KAFKA_PARTITIONS to the topic's number of partitions; to use another number, publish to another topic",
				"topic %s has %d partitions, and KUBERELAY_KAFKA_PARTITIONS is %d, which only new topics get", t.Name, t.Topic.Partitions, want)
		}
	}
	if len(topics) == 0 {
		return skip(noTopic)
	}
	return pass("topics have %d %s", want, plural(want, "partition"))
}

func checkMaxMessageBytes(f *Facts, all []kafka.TopicInspection) verdict {
	var most int64
	for _, t := range all {
		if is := int64(t.Topic.MaxMessageBytes); is > 0 && (most == 0 || is < most) {
			most = is
		}
	}
	if most == 0 {
		return skip("there is no topic whose settings can be read")
	}
	return checkMessageSize(f, most, "max.message.bytes", "raise max.message.bytes of the topic")
}

func checkIdempotence(f *Facts) verdict {
	if !f.Settings.Kafka.Idempotent {
		return warn("set KUBERELAY_KAFKA_IDEMPOTENT=true, if the Kafka cluster permits it", "KUBERELAY_KAFKA_IDEMPOTENT is false, so events can repeat, and two concurrent forwarders go undetected")
	}
	return pass("the brokers discard repeated events and fence replaced forwarders")
}

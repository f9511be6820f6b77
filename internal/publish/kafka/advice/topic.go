package advice

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
)

// TopicConfig is the desired configuration of a topic.
type TopicConfig struct {
	Name string

	// Partitions is the number of partitions of a new topic. An existing topic can have
	// a different number.
	Partitions int
	// Replication is the minimum number of replicas per partition
	// (KUBERELAY_KAFKA_REPLICATION). If it is less than 1, the cluster's default applies.
	Replication int
	// CleanupPolicy is delete or compact. A topic with the policy delete must set retention.ms and
	// retention.bytes to -1, so that Kafka deletes no records by age or size.
	CleanupPolicy string
}

// Settings returns the configuration of a new topic.
func (w TopicConfig) Settings() map[string]string {
	s := map[string]string{"cleanup.policy": w.CleanupPolicy}
	if w.CleanupPolicy == "delete" {
		s["retention.ms"], s["retention.bytes"] = "-1", "-1"
	}
	return s
}

// wrongSetting is a topic setting that would break a guarantee.
type wrongSetting struct {
	name, is, should string
	set              string // the value to set with kafka-configs.sh, or "" if that cannot fix it
}

// CheckTopic returns an error that names the wrong settings of an existing topic and the commands that fix
// them, or nil. The last argument holds the current settings of the topic. A setting that is not in this map
// counts as correct.
func (a *Advisor) CheckTopic(want TopicConfig, replication int, is map[string]string) error {
	if wrong := compare(replication, is, want); len(wrong) > 0 {
		return failure.Misconfigured("%s", a.describe(want, wrong))
	}
	return nil
}

// compare returns the wrong settings.
func compare(replication int, is map[string]string, want TopicConfig) []wrongSetting {
	var wrong []wrongSetting
	if replication < want.Replication {
		wrong = append(wrong, wrongSetting{name: replicationFactor, is: strconv.Itoa(replication), should: fmt.Sprintf("%d or more", want.Replication)})
	}
	policy, known := is["cleanup.policy"]
	if known && hasPolicy(policy, "compact") != (want.CleanupPolicy == "compact") {
		wrong = append(wrong, wrongSetting{"cleanup.policy", policy, want.CleanupPolicy, want.CleanupPolicy})
		policy = want.CleanupPolicy
	}
	// If the policy is empty (Kafka 4.1 and later), the brokers ignore the retention and delete nothing.
	if hasPolicy(policy, "delete") {
		for _, name := range []string{"retention.ms", "retention.bytes"} {
			if value, known := is[name]; known && !strings.HasPrefix(value, "-") {
				wrong = append(wrong, wrongSetting{name, value, "-1, because the topic would lose objects that do not change", "-1"})
			}
		}
	}
	return wrong
}

// replicationFactor is not a topic setting, so kafka-configs.sh cannot change it.
const replicationFactor = "replication factor"

// describe names the wrong settings and the commands that fix them.
func (a *Advisor) describe(want TopicConfig, wrong []wrongSetting) string {
	var what, set, fixes []string
	for _, w := range wrong {
		what = append(what, fmt.Sprintf("%s is %q, should be %s", w.name, w.is, w.should))
		if w.name == replicationFactor {
			fixes = append(fixes, fmt.Sprintf("%s --execute --reassignment-json-file FILE, where FILE names %d brokers for each partition, "+
				"or set KUBERELAY_KAFKA_REPLICATION=%s", a.tool("kafka-reassign-partitions.sh"), want.Replication, w.is))
		} else {
			set = append(set, w.name+"="+w.set)
		}
	}
	if len(set) > 0 {
		configs := fmt.Sprintf("%s --alter --entity-type topics --entity-name %s --add-config %s",
			a.tool("kafka-configs.sh"), quote(want.Name), quote(strings.Join(set, ",")))
		fixes = slices.Insert(fixes, 0, configs)
	}
	return fmt.Sprintf("topic %s has wrong settings: %s. To fix it: %s", want.Name, strings.Join(what, "; "), strings.Join(fixes, "; and "))
}

func hasPolicy(policies, one string) bool {
	return slices.Contains(strings.Split(strings.ReplaceAll(policies, " ", ""), ","), one)
}

// CreateCommand returns the command with which an administrator can create the topic.
func (a *Advisor) CreateCommand(want TopicConfig) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s --create --topic %s --partitions %d", a.tool("kafka-topics.sh"), quote(want.Name), want.Partitions)
	if want.Replication > 0 {
		fmt.Fprintf(&b, " --replication-factor %d", want.Replication)
	}
	settings := want.Settings()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, " --config %s", quote(name+"="+settings[name]))
	}
	return b.String()
}

// Number returns the value of a setting. It returns 0 for text that is not a number.
func Number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

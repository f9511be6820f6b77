package broker

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/advice"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/login"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/logtest"
)

// events returns the configuration of an event topic.
func events(name string) advice.TopicConfig {
	return advice.TopicConfig{Name: name, Partitions: 3, Replication: 1, CleanupPolicy: "delete"}
}

func TestEnsureCreatesOnce(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	name := "created-" + kafkabrokertest.Topic(t, b, "x", 1, nil)
	want := events(name)

	if _, err := newClient(t, b.Addr()).Topic(within(t), name); !errors.Is(err, ErrNoTopic) {
		t.Fatalf("got %v, want ErrNoTopic", err)
	}
	// Several clients, each with its own metadata, call Ensure at the same time. Each client can
	// write to every partition when Ensure returns.
	var wg sync.WaitGroup
	created := make(chan bool, 4)
	for range cap(created) {
		c := newClient(t, b.Addr())
		wg.Go(func() {
			got, made, err := c.Ensure(within(t), want)
			if err != nil {
				t.Error(err)
				return
			}
			if want := (Topic{name, 3, 1, "delete", 1_048_588, 1, false}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			for p := range 3 {
				put(t, c, name, p, record("a", "1"))
			}
			created <- made
		})
	}
	wg.Wait()
	close(created)
	times := 0
	for made := range created {
		if made {
			times++
		}
	}
	if times != 1 {
		t.Errorf("created %d times", times)
	}

	c := newClient(t, b.Addr())
	o, err := c.Offsets(within(t), name)
	if err != nil || !slices.Equal(o.Start, []int64{0, 0, 0}) || !slices.Equal(o.End, []int64{4, 4, 4}) {
		t.Errorf("got %+v, %v", o, err)
	}
	names, err := c.Topics(within(t))
	if err != nil || !slices.Contains(names, name) || !slices.IsSorted(names) || slices.Contains(names, "__transaction_state") {
		t.Errorf("got %q, %v", names, err)
	}
	is, err := c.kafkaSetting(t, name, "retention.ms")
	if err != nil || is != "-1" {
		t.Errorf("retention.ms is %q, %v", is, err)
	}
}

func TestEnsureChecks(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	compacted := map[string]string{"cleanup.policy": "compact"}
	forever := map[string]string{"retention.ms": "-1"}
	tests := []struct {
		name   string
		is     map[string]string
		want   advice.TopicConfig
		wrong  []string // parts of the error; nil if no setting is wrong
		absent string
	}{
		{name: "forever", is: forever, want: advice.TopicConfig{CleanupPolicy: "delete"}},
		{name: "forgets by age", is: map[string]string{}, want: advice.TopicConfig{CleanupPolicy: "delete"},
			wrong: []string{`retention.ms is "604800000", should be -1`, "--add-config retention.ms=-1"}, absent: "retention.bytes"},
		{name: "forgets by size", is: map[string]string{"retention.ms": "-1", "retention.bytes": "1000000"}, want: advice.TopicConfig{CleanupPolicy: "delete"},
			wrong: []string{`retention.bytes is "1000000"`, "--add-config retention.bytes=-1"}},
		{name: "compacted", is: compacted, want: advice.TopicConfig{CleanupPolicy: "compact"}},
		{name: "not compacted", is: forever, want: advice.TopicConfig{CleanupPolicy: "compact"},
			wrong: []string{`cleanup.policy is "delete", should be compact`, "--add-config cleanup.policy=compact"}},
		{name: "compacted against the setting", is: compacted, want: advice.TopicConfig{CleanupPolicy: "delete"},
			wrong: []string{`cleanup.policy is "compact", should be delete`, "--add-config cleanup.policy=delete,retention.ms=-1"}},
		{name: "compacted and forgets", is: map[string]string{"cleanup.policy": "compact,delete"}, want: advice.TopicConfig{CleanupPolicy: "compact"},
			wrong: []string{`retention.ms is "604800000"`, "--add-config retention.ms=-1"}},
		{name: "replicas", is: forever, want: advice.TopicConfig{CleanupPolicy: "compact", Replication: 3},
			wrong: []string{`replication factor is "1", should be 3 or more`, `cleanup.policy is "delete", should be compact`,
				"kafka-reassign-partitions.sh --bootstrap-server " + b.Addr(), "KUBERELAY_KAFKA_REPLICATION=1"}},
		{name: "partitions", is: compacted, want: advice.TopicConfig{CleanupPolicy: "compact", Partitions: 7}},
	}
	c := newClient(t, b.Addr())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Name = kafkabrokertest.Topic(t, b, "checked", 2, tt.is)
			tt.want.Partitions = max(tt.want.Partitions, 1)
			got, created, err := c.Ensure(within(t), tt.want)
			if created || got.Partitions != 2 {
				t.Errorf("got %+v, created: %v", got, created)
			}
			if tt.wrong == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantMisconfigured(t, err, failure.Never, append(tt.wrong, tt.want.Name)...)
			if strings.Contains(err.Error(), "kafka-configs.sh") {
				wantMisconfigured(t, err, failure.Never, "kafka-configs.sh --bootstrap-server "+b.Addr()+" --alter --entity-type topics --entity-name "+tt.want.Name)
			}
			if tt.absent != "" && strings.Contains(err.Error(), tt.absent) {
				t.Errorf("%s is right, but named in: %v", tt.absent, err)
			}
		})
	}
}

func TestEnsureSaysWhatIsImpossible(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	c := newClient(t, b.Addr())
	tests := []struct {
		name  string
		want  advice.TopicConfig
		parts []string
	}{
		{"setting", advice.TopicConfig{Name: "bad-setting", Partitions: 1, CleanupPolicy: "keep"}, []string{"cleanup.policy"}},
		{"characters", advice.TopicConfig{Name: "bad name", Partitions: 1, CleanupPolicy: "compact"}, []string{"bad name"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, created, err := c.Ensure(within(t), tt.want)
			if created {
				t.Error("created")
			}
			wantMisconfigured(t, err, failure.Never, tt.parts...)
		})
	}
}

// TestEnsureWithTooFewBrokers verifies that too few brokers cause a retriable error instead of
// failure.ErrMisconfigured. The missing brokers may be starting, or temporarily fenced.
func TestEnsureWithTooFewBrokers(t *testing.T) {
	c := newClient(t, kafkabrokertest.Shared(t).Addr())
	_, created, err := c.Ensure(within(t), advice.TopicConfig{Name: "too-many-replicas", Partitions: 1, CleanupPolicy: "compact", Replication: 3})
	if created || errors.Is(err, failure.ErrMisconfigured) {
		t.Errorf("created: %t, %v", created, err)
	}
	wantError(t, err, failure.Retry, "KUBERELAY_KAFKA_REPLICATION, which is 3", "start the missing brokers")
}

func TestTopicThatGoesAndComesBack(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	c := newClient(t, b.Addr())
	ctx := within(t)
	topic := kafkabrokertest.Topic(t, b, "gone", 1, nil)
	put(t, c, topic, 0, record("a", "1"), record("a", "2"))
	c.deleteTopic(t, topic)

	var wg sync.WaitGroup
	for name, use := range map[string]func() error{
		"Offsets": func() error { _, err := c.Offsets(ctx, topic); return err },
		"Read":    func() error { _, err := c.Read(ctx, topic, 0, 0, 2, func(Record) error { return nil }); return err },
		"Follow":  func() error { return c.Follow(ctx, topic, 0, 2, func(Record) error { return nil }) },
	} {
		wg.Go(func() {
			if err := use(); !errors.Is(err, ErrNoTopic) {
				t.Errorf("%s: got %v, want ErrNoTopic", name, err)
			}
		})
	}
	wg.Wait()

	if err := b.CreateTopic(ctx, topic, 2, map[string]string{"retention.ms": "-1"}); err != nil {
		t.Fatal(err)
	}
	put(t, c, topic, 0, record("b", "1"))
	got, created, err := c.Ensure(ctx, advice.TopicConfig{Name: topic, Partitions: 1, CleanupPolicy: "delete"})
	if err != nil || created || got.Partitions != 2 {
		t.Errorf("got %+v, created: %v, %v", got, created, err)
	}
	_, err = c.Read(ctx, topic, 0, 2, 3, func(Record) error { return nil })
	wantError(t, err, failure.Never, "[0, 1]")
	if !errors.Is(err, ErrPastEnd) {
		t.Errorf("got %v, want ErrPastEnd", err)
	}
}

// TestMissingACLsAreNamed verifies that the error of each request names the missing permission.
func TestMissingACLsAreNamed(t *testing.T) {
	password := writeFile(t, "password", "alice-secret\n")
	b := kafkabrokertest.Start(t, kafkabroker.Options{
		Listeners: []kafkabroker.Listener{kafkabroker.SASLPlaintext},
		Users:     map[string]string{"alice": "alice-secret"},
		Authorize: true,
	})
	topic := kafkabrokertest.Topic(t, b, "secret", 1, map[string]string{"cleanup.policy": "compact"})
	root := newClient(t, b.Addr())
	put(t, root, topic, 0, record("a", "1"))
	log := new(logtest.Log)
	c := newClient(t, b.AddrOf(kafkabroker.SASLPlaintext), func(o *Options) {
		o.SASLMechanism, o.User, o.PasswordFile, o.Logger = login.ScramSHA256, "alice", password, log.Logger()
	})
	ctx := within(t)
	acl := func(operation, resource, name string) []string {
		return []string{"add the ACL: " + operation + " on " + resource + " " + name,
			"kafka-acls.sh --bootstrap-server " + b.AddrOf(kafkabroker.SASLPlaintext) + " --command-config admin.properties --add --allow-principal User:alice" +
				" --operation " + operation + " --" + resource + " " + name}
	}

	_, err := c.Topic(ctx, topic)
	wantMisconfigured(t, err, failure.Denied, acl("Describe", "topic", topic)...)
	_, _, err = c.Ensure(ctx, advice.TopicConfig{Name: topic, Partitions: 1, CleanupPolicy: "compact"})
	wantMisconfigured(t, err, failure.Denied, acl("Describe", "topic", topic)...)
	_, err = c.InitProducerID(ctx, "writer", NoProducer)
	wantMisconfigured(t, err, failure.Denied, acl("Write", "transactional-id", "writer")...)

	// With only the permission Describe, Ensure finds the topic and does not check its settings.
	// All other operations are denied.
	root.allow(t, "alice", "Describe", topic)
	got, _, err := c.Ensure(ctx, advice.TopicConfig{Name: topic, Partitions: 1, CleanupPolicy: "delete"})
	if err != nil || got.Partitions != 1 || got.CleanupPolicy != "" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, _, err := c.Ensure(ctx, advice.TopicConfig{Name: topic, Partitions: 1, CleanupPolicy: "delete"}); err != nil {
		t.Error(err)
	}
	if got := strings.Count(log.String(), "cannot check the settings of the topic"); got != 1 {
		t.Errorf("logged %d times, want once:\n%s", got, log)
	}
	_, err = c.Produce(ctx, topic, 0, batch(t, 0, NoProducer, -1, record("a", "2")))
	wantMisconfigured(t, err, failure.Denied, acl("Write", "topic", topic)...)
	_, err = c.Read(ctx, topic, 0, 0, 1, func(Record) error { return nil })
	wantMisconfigured(t, err, failure.Denied, acl("Read", "topic", topic)...)

	// The user may not create a missing topic.
	root.allow(t, "alice", "Describe", "missing")
	_, _, err = c.Ensure(ctx, advice.TopicConfig{Name: "missing", Partitions: 2, Replication: 1, CleanupPolicy: "delete"})
	wantMisconfigured(t, err, failure.Denied, append(acl("Create", "topic", "missing"), "have an administrator create it: kafka-topics.sh",
		"--create --topic missing --partitions 2 --replication-factor 1 --config cleanup.policy=delete --config retention.bytes=-1 --config retention.ms=-1")...)

	if strings.Contains(log.String(), "alice-secret") {
		t.Error("the password is in the log")
	}
}

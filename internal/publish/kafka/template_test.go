package kafka

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/login"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// perResource returns writers with a topic per resource, and the prefix of the topic names.
func perResource(t *testing.T) (w *writers, prefix string) {
	w = newWriters(t, 1)
	prefix = w.opts.Topic
	w.opts.Topic, w.opts.CheckpointTopic = prefix+".{resource}", prefix+"-checkpoint"
	return w, prefix
}

// opened publishes an event of an object whose topic may have to be opened first.
func (w *writers) opened(b *Bus, k event.Key) (position uint64) {
	w.t.Helper()
	await(w.t, "published", func() (err error) {
		position, err = w.publish(b, w.messageOf(k, 1, 0))
		return err
	})
	return position
}

var (
	aPod    = event.Key{Resource: "pods", Namespace: "default", Name: "a"}
	aSecret = event.Key{Resource: "secrets", Namespace: "default", Name: "a"}
)

// TestOthersTopicsAreLeftAlone verifies that topics that match the template but belong to others
// receive no markers, and that their settings are not checked. A topic with Kuberelay records is
// found even if the checkpoint topic does not name it.
func TestOthersTopicsAreLeftAlone(t *testing.T) {
	w, prefix := perResource(t)
	shared := kafkabrokertest.Shared(t)
	client, err := broker.New(w.opts.Broker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	others := map[string]int64{prefix + ".orders": 1, prefix + ".empty": 0}
	for name, records := range others {
		if err := shared.CreateTopic(t.Context(), name, 2, map[string]string{"cleanup.policy": "delete"}); err != nil {
			t.Fatal(err)
		}
		if records > 0 {
			writer := &kafkago.Writer{Addr: kafkago.TCP(w.opts.Broker.Addrs...), Topic: name}
			if err := writer.WriteMessages(t.Context(), kafkago.Message{Key: []byte("customer/1/orders/_/2"), Value: []byte("a book")}); err != nil {
				t.Fatal(err)
			}
			writer.Close()
		}
	}
	b := w.open()
	want := map[event.Key]uint64{aPod: w.opened(b, aPod)}
	crash(b)
	w.wantLoaded(w.open(), want)
	w.deleteTopic(w.opts.CheckpointTopic)
	w.wantLoaded(w.open(), want)
	for name, records := range others {
		offsets, err := client.Offsets(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if got := offsets.End[0] + offsets.End[1]; got != records {
			t.Errorf("topic %s of somebody else has %d records, want %d", name, got, records)
		}
	}
}

// TestATopicOpensDuringALoad verifies that a load doesn't treat an event as lost if its topic opened
// after the load listed the open topics. In an earlier version, the next load removed the entry of the
// event, and the object was published again with the same ID.
func TestATopicOpensDuringALoad(t *testing.T) {
	cluster, w := newFakeWriters(t)
	w.opts.Topic, w.opts.CheckpointTopic = "kr.{resource}", "checkpoint"
	b := w.open()
	want := map[event.Key]uint64{aPod: w.opened(b, aPod)}
	held, release := holdFetches(t, cluster, "kr.pods", 1) // only a load reads this topic
	loaded := make(chan error, 1)
	go func() { loaded <- b.Load(t.Context(), func(event.Key, event.Acked) error { return nil }) }()
	<-held
	want[aSecret] = w.opened(b, aSecret)
	release()
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	w.wantLoaded(b, want)
	if at, err := w.publish(b, w.messageOf(aSecret, 1, 0)); err != nil || at != want[aSecret] {
		t.Errorf("published again at %d, %v, want %d", at, err, want[aSecret])
	}
	w.flushed(b)
	crash(b)
	w.wantLoaded(w.open(), want)
}

// TestATopicMayNotBeSeenForAWhile verifies that a topic counts neither as deleted nor as empty
// while the user may not see it. Brokers leave such a topic out of their list. When the topic is
// visible again, its objects are known without any publish.
func TestATopicMayNotBeSeenForAWhile(t *testing.T) {
	kb := kafkabrokertest.Start(t, kafkabroker.Options{
		Listeners: []kafkabroker.Listener{kafkabroker.SASLPlaintext},
		Users:     map[string]string{"forwarder": "secret"}, Authorize: true,
	})
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := testOptions(kb.AddrOf(kafkabroker.SASLPlaintext))
	o.Broker.SASLMechanism, o.Broker.User, o.Broker.PasswordFile = login.Plain, "forwarder", password
	o.Topic, o.CheckpointTopic, o.Partitions = "kr.{resource}", "checkpoint", 1
	w := &writers{t, o}
	admin := kafkabrokertest.Client(t, kb.Addr())
	for _, resource := range []kafkago.ResourceType{kafkago.ResourceTypeTopic, kafkago.ResourceTypeTransactionalID} {
		allow(t, admin, resource, "*")
	}

	b := w.open()
	want := map[event.Key]uint64{aPod: w.opened(b, aPod), aSecret: w.opened(b, aSecret)}
	crash(b)
	crash(w.open()) // its markers come after the events

	hide(t, admin, "kr.pods")
	b = w.open()
	w.wantLoaded(b, map[event.Key]uint64{aSecret: want[aSecret]})
	if _, err := w.publish(b, w.messageOf(aPod, 2, 0)); err == nil {
		t.Error("published to a topic that may not be written to")
	}
	if at := w.mustPublish(b, w.messageOf(aSecret, 2, want[aSecret])); publish.Offset(at) > publish.Offset(want[aSecret]) {
		want[aSecret] = at // other topics continue
	}
	created := b.PossibleLosses()
	show(t, admin, "kr.pods")
	await(t, "the topic is seen again", func() error {
		if b.PossibleLosses() == created {
			return fmt.Errorf("not yet: %w", b.Ready())
		}
		return nil
	})
	w.wantLoaded(b, want)
	crash(b)
	w.wantLoaded(w.open(), want)
}

func allow(t *testing.T, admin *kafkago.Client, resource kafkago.ResourceType, name string) {
	t.Helper()
	createACL(t, admin, kafkago.ACLEntry{
		ResourceType: resource, ResourceName: name, ResourcePatternType: kafkago.PatternTypeLiteral, Principal: "User:forwarder",
		Host: "*", Operation: kafkago.ACLOperationTypeAll, PermissionType: kafkago.ACLPermissionTypeAllow,
	})
}

// hide denies the forwarder access to a topic.
func hide(t *testing.T, admin *kafkago.Client, topic string) {
	t.Helper()
	createACL(t, admin, denial(topic))
}

func denial(topic string) kafkago.ACLEntry {
	return kafkago.ACLEntry{
		ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic, ResourcePatternType: kafkago.PatternTypeLiteral, Principal: "User:forwarder",
		Host: "*", Operation: kafkago.ACLOperationTypeAll, PermissionType: kafkago.ACLPermissionTypeDeny,
	}
}

func createACL(t *testing.T, admin *kafkago.Client, acl kafkago.ACLEntry) {
	t.Helper()
	res, err := admin.CreateACLs(t.Context(), &kafkago.CreateACLsRequest{ACLs: []kafkago.ACLEntry{acl}})
	if err == nil {
		err = res.Errors[0]
	}
	if err != nil {
		t.Fatal(err)
	}
	awaitACLs(t, admin, acl, 1)
}

// awaitACLs waits until the broker applies n ACLs like this one. The broker responds to a change
// before it applies the change.
func awaitACLs(t *testing.T, admin *kafkago.Client, acl kafkago.ACLEntry, n int) {
	t.Helper()
	await(t, "the ACLs are applied", func() error {
		res, err := admin.DescribeACLs(t.Context(), &kafkago.DescribeACLsRequest{Filter: kafkago.ACLFilter{
			ResourceTypeFilter: acl.ResourceType, ResourceNameFilter: acl.ResourceName, ResourcePatternTypeFilter: acl.ResourcePatternType,
			Operation: kafkago.ACLOperationTypeAny, PermissionType: acl.PermissionType,
		}})
		if err == nil {
			err = res.Error
		}
		if err == nil && len(res.Resources) != n {
			err = fmt.Errorf("%d are, want %d", len(res.Resources), n)
		}
		return err
	})
}

// show undoes hide.
func show(t *testing.T, admin *kafkago.Client, topic string) {
	t.Helper()
	res, err := admin.DeleteACLs(t.Context(), &kafkago.DeleteACLsRequest{Filters: []kafkago.DeleteACLsFilter{{
		ResourceTypeFilter: kafkago.ResourceTypeTopic, ResourceNameFilter: topic, ResourcePatternTypeFilter: kafkago.PatternTypeLiteral,
		PrincipalFilter: "User:forwarder", HostFilter: "*", Operation: kafkago.ACLOperationTypeAll, PermissionType: kafkago.ACLPermissionTypeDeny,
	}}})
	if err == nil {
		err = res.Results[0].Error
	}
	if err != nil {
		t.Fatal(err)
	}
	awaitACLs(t, admin, denial(topic), 0)
}

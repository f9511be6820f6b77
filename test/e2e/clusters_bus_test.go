package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// fleetBus is a stream or a topic that several clusters share.
type fleetBus struct {
	url string            // the URL of NATS, empty on Kafka
	set map[string]string // the variables of a forwarder that publishes to the bus

	// objects returns the events of each object of a cluster by name, oldest first. all returns the
	// number of messages for each subject or key.
	objects func(cluster string) map[string][]fleetEvent
	all     func() map[string]int
	claims  func(cluster string) []string // the owners' UIDs in the claims, oldest first
	purged  func(cluster, name string) error
	// connections returns the names of the forwarders' connections. It is nil on Kafka.
	connections func() []string
}

// fleetEvent is an event as a subscriber reads it from either bus.
type fleetEvent struct {
	kind, id, uid, sequence, previous, version string
	data                                       []byte
}

func fleetEventOf(get func(string) string, kind string, data []byte) fleetEvent {
	return fleetEvent{kind, get("id"), get("uid"), get("sequence"), get("previousversion"), get("resourceversion"), data}
}

func natsFleet(t *testing.T) fleetBus {
	bus := natsServer(t)
	js := jetStream(t, bus.URL)
	var sub *subscriber
	read := func() map[string][]received {
		if sub == nil {
			sub = subscribe(t, bus.URL)
		}
		sub.end()
		sub.mu.Lock()
		defer sub.mu.Unlock()
		return maps.Clone(sub.events)
	}
	// NATS_HISTORY is large enough to retain every event.
	return fleetBus{
		url: bus.URL, set: map[string]string{"NATS_HISTORY": "1000"},
		connections: func() (names []string) {
			for _, c := range bus.Connections() {
				if strings.HasPrefix(c.Name, "kuberelay") {
					names = append(names, c.Name)
				}
			}
			return names
		},
		objects: func(cluster string) map[string][]fleetEvent {
			found := map[string][]fleetEvent{}
			prefix := "kuberelay." + strings.ReplaceAll(cluster, ".", "=2E") + ".core.configmaps." + shared + "."
			for subject, events := range read() {
				if name, ok := strings.CutPrefix(subject, prefix); ok {
					for _, r := range events {
						found[name] = append(found[name], fleetEventOf(r.attribute, r.kind(), r.data))
					}
				}
			}
			return found
		},
		all: func() map[string]int {
			n := map[string]int{}
			for subject, events := range read() {
				n[subject] = len(events)
			}
			return n
		},
		claims: func(cluster string) (uids []string) {
			all := read()
			claims := all["kuberelay."+cluster+"._control.cluster._.claimed"]
			for _, r := range claims {
				uids = append(uids, claimedBy(t, r.data))
			}
			for subject, events := range all {
				if strings.HasPrefix(subject, "kuberelay."+cluster+".") && len(claims) > 0 && events[0].sequence < claims[0].sequence {
					t.Errorf("%s at %d was before the first claim of %s at %d", subject, events[0].sequence, cluster, claims[0].sequence)
				}
			}
			return uids
		},
		purged: func(cluster, name string) error {
			stream, err := js.Stream(t.Context(), "KUBERELAY")
			if err != nil {
				return err
			}
			_, err = stream.GetLastMsgForSubject(t.Context(), "kuberelay."+cluster+".core.configmaps."+shared+"."+name)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil
			}
			return fmt.Errorf("the bus still has its last message: %w", err)
		},
	}
}

func kafkaFleet(t *testing.T, name string) fleetBus {
	bus := topic{t, kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName(name)}
	set := onKafka(bus, map[string]string{"KAFKA_TRANSACTIONAL_ID": "", "KAFKA_TOMBSTONES": "false"})
	read := func() (all map[string][]record) {
		poll.Try(t, "the topic can be read", func(ctx context.Context) (err error) {
			all, err = readTopic(ctx, bus.addr, bus.name)
			return err
		})
		return all
	}
	return fleetBus{
		set: set,
		objects: func(cluster string) map[string][]fleetEvent {
			found := map[string][]fleetEvent{}
			prefix := cluster + "/core/configmaps/" + shared + "/"
			for key, records := range read() {
				if name, ok := strings.CutPrefix(key, prefix); ok {
					for _, r := range records {
						found[name] = append(found[name], fleetEventOf(func(a string) string { return r.attributes[a] }, r.kind(), r.data))
					}
				}
			}
			return found
		},
		all: func() map[string]int {
			n := map[string]int{}
			for key, records := range read() {
				n[key] = len(records)
			}
			return n
		},
		claims: func(cluster string) (uids []string) {
			for _, r := range read()[cluster+"/_control/cluster/_/claimed"] {
				uids = append(uids, claimedBy(t, r.data))
			}
			return uids
		},
		purged: func(cluster, name string) error {
			records := read()[cluster+"/core/configmaps/"+shared+"/"+name]
			if len(records) == 0 || !records[len(records)-1].tombstone {
				return errors.New("no tombstone follows its last event")
			}
			return nil
		},
	}
}

// awaitKinds waits until the events of a cluster's object have these types, in order.
func (b fleetBus) awaitKinds(t *testing.T, cluster, name, want string) {
	t.Helper()
	poll.Try(t, name+" of "+cluster+" has "+want, func(context.Context) error {
		var kinds []string
		for _, e := range b.objects(cluster)[name] {
			kinds = append(kinds, e.kind)
		}
		if got := strings.Join(kinds, " "); got != want {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
}

// awaitSnapshot waits until the bus has both markers of a cluster's first snapshot.
func (b fleetBus) awaitSnapshot(t *testing.T, cluster string) {
	t.Helper()
	poll.Try(t, "the first snapshot of "+cluster+" is completed", func(context.Context) error {
		for name, n := range b.all() {
			if strings.Contains(name, cluster) && strings.Contains(name, "snapshot") && n == 2 {
				return nil
			}
		}
		return errors.New("the bus doesn't say so")
	})
}

func claimedBy(t *testing.T, data []byte) string {
	t.Helper()
	uid, _ := decode(t, data)["uid"].(string)
	return uid
}

// onFleets runs a test on each bus.
func onFleets(t *testing.T, name string, test func(*testing.T, fleetBus)) {
	t.Run("nats", func(t *testing.T) { test(t, natsFleet(t)) })
	t.Run("kafka", func(t *testing.T) { test(t, kafkaFleet(t, name)) })
}

// forwarder returns a forwarder for the member. It isn't started.
func (b fleetBus) forwarder(t *testing.T, m *member, more map[string]string) *forwarder {
	t.Helper()
	set := map[string]string{"RESOURCES": "configmaps", "NAMESPACES": shared, "CLUSTER_NAME": m.name}
	maps.Copy(set, b.set)
	maps.Copy(set, more)
	return newForwarder(t, m.cp.Kubeconfig(), b.url, set)
}

// check compares the member's part of the bus with the member's cluster. It runs verify and checks
// every event: no event is repeated, and each event follows the previous one.
func (b fleetBus) check(t *testing.T, m *member, f *forwarder) {
	t.Helper()
	if code, stdout, stderr := f.run("verify", settle); code != 0 || !strings.Contains(stdout, "0 differences") {
		t.Errorf("verify of %s ended with %d:\n%s%s", m.name, code, stdout, stderr)
	}
	list, err := m.of(configMaps, shared).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	live := map[string]*unstructured.Unstructured{}
	for n := range list.Items {
		live[list.Items[n].GetName()] = &list.Items[n]
	}
	for name, events := range b.objects(m.name) {
		checkEvents(t, m.name+"/"+name, events)
		last, o := events[len(events)-1], live[name]
		delete(live, name)
		switch {
		case o == nil && last.kind != "deleted":
			t.Errorf("%s/%s is on the bus as %s, and not in the cluster", m.name, name, last.kind)
		case o != nil && last.kind == "deleted":
			t.Errorf("%s/%s is deleted on the bus, and exists", m.name, name)
		case o != nil && !reflect.DeepEqual(decode(t, last.data), asPublished(o)):
			t.Errorf("%s/%s differs: the bus has version %s, the cluster %s", m.name, name, last.version, o.GetResourceVersion())
		}
	}
	for name := range live {
		t.Errorf("%s/%s is not on the bus", m.name, name)
	}
}

func checkEvents(t *testing.T, object string, events []fleetEvent) {
	t.Helper()
	seen, sequence := map[string]bool{}, ""
	for n, e := range events {
		if seen[e.id] {
			t.Errorf("%s: id %s is there twice", object, e.id)
		}
		seen[e.id] = true
		begins := e.kind == "created" || e.kind == "snapshot"
		switch {
		case n == 0 && !begins:
			t.Errorf("%s begins with %s", object, e.kind)
		case n == 0:
		case begins != (events[n-1].kind == "deleted"):
			t.Errorf("%s: %s follows %s", object, e.kind, events[n-1].kind)
		case !begins && (e.previous != events[n-1].version || e.uid != events[n-1].uid):
			t.Errorf("%s: version %s says that it follows %s, and follows %s", object, e.version, e.previous, events[n-1].version)
		case e.kind != "deleted" && e.sequence <= sequence:
			t.Errorf("%s: sequence %s follows %s", object, e.sequence, sequence)
		}
		if e.kind != "deleted" { // an inferred delete has the version of the previous event
			sequence = e.sequence
		}
	}
}

// claimsAndObjects returns all counts of messages except those of writer markers.
func (b fleetBus) claimsAndObjects() map[string]int {
	all := b.all()
	maps.DeleteFunc(all, func(name string, _ int) bool { return strings.Contains(name, "/_control/writer/") })
	return all
}

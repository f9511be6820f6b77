package forget

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

func TestMain(m *testing.M) { os.Exit(kafkabrokertest.Run(m)) }

// limit bounds every wait.
const limit = 2 * time.Minute

// bus opens the bus as the writer for a cluster name.
type bus func(cluster string) publish.Bus

func onBoth(t *testing.T, test func(t *testing.T, open bus)) {
	opened := func(t *testing.T, b publish.Bus, err error) publish.Bus {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if err := b.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		return b
	}
	t.Run("nats", func(t *testing.T) {
		url := natstest.Start(t).URL
		test(t, func(cluster string) publish.Bus {
			b, err := nats.Connect(t.Context(), nats.Options{Connection: nats.Connection{URLs: []string{url}, Cluster: cluster}})
			return opened(t, b, err)
		})
	})
	t.Run("kafka", func(t *testing.T) {
		at, topic := kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName(t.Name())
		test(t, func(cluster string) publish.Bus {
			b, err := kafka.Open(kafka.Options{Broker: broker.Options{Addrs: []string{at}}, Topic: topic, Cluster: cluster, Idempotent: true, Tombstones: true})
			return opened(t, b, err)
		})
	})
}

var configMaps = event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}

// create publishes the creation of an object.
func create(t *testing.T, b publish.Bus, cluster, name string) {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default","uid":"%s-uid","resourceVersion":"7"},"data":{"a":"1"}}`, name, name)
	m, err := event.Builder{Cluster: cluster}.Message(event.Change{
		Type: event.Created, Cause: event.CauseWatch, Key: configMaps.Key("default", name), Resource: configMaps, Observed: time.Now(),
		Object: &event.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: name, UID: types.UID(name + "-uid"), ResourceVersion: "7", Body: event.JSON([]byte(body))},
	})
	if err == nil {
		err = publish.Put(t.Context(), b, m)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// loaded returns the last event of each object of a cluster, by object name.
func loaded(t *testing.T, b publish.Bus) map[string]event.Acked {
	t.Helper()
	all := map[string]event.Acked{}
	err := b.Load(t.Context(), func(k event.Key, a event.Acked) error {
		if delete(all, k.Name); a.UID != "" {
			all[k.Name] = a
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func config(b publish.Bus, cluster string) Config {
	return Config{
		Bus: b, Builder: event.Builder{Cluster: cluster}, InFlight: 4, Retention: time.Hour, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
}

func claim(t *testing.T, b publish.Bus, cluster string, c event.Claim) {
	t.Helper()
	c.Claimed = time.Now()
	m, err := event.Builder{Cluster: cluster}.ClusterClaimed(c)
	if err == nil {
		err = publish.Put(t.Context(), b, m)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestForget verifies that the last event of each object of the cluster is a delete with the last state,
// and that the claim records that the cluster is forgotten. Nothing changes for another cluster. A second
// run publishes nothing. A run after the retention purges the deletes.
func TestForget(t *testing.T) {
	const objects = 20
	onBoth(t, func(t *testing.T, open bus) {
		old, other := open("old"), open("other")
		claim(t, old, "old", event.Claim{UID: "old-uid", Epoch: 0, Settings: map[string]string{"KUBERELAY_FILTER": "01"}})
		for n := range objects {
			create(t, old, "old", fmt.Sprintf("a%d", n))
		}
		create(t, other, "other", "a0")
		before := loaded(t, other)

		r, err := Run(t.Context(), config(old, "old"))
		if err != nil || r != (Result{Deleted: objects, Claimed: true}) {
			t.Fatalf("got %+v, %v", r, err)
		}
		for name, a := range loaded(t, old) {
			if !a.Deleted || a.Deselected || a.UID != name+"-uid" || a.ResourceVersion != "7" {
				t.Errorf("%s is %+v", name, a)
			}
			s, err := old.At(t.Context(), configMaps.Key("default", name), a.Position)
			if err != nil || s.Object == nil || s.Object.Body.None() {
				t.Errorf("the delete of %s has %+v, %v", name, s.Object, err)
			}
		}
		c, err := old.LastClaim(t.Context())
		if err != nil || c.UID != "old-uid" || c.Forgotten.IsZero() || c.Settings != nil {
			t.Errorf("the claim is %+v, %v", c, err)
		}
		if after := loaded(t, other); len(after) != 1 || after["a0"] != before["a0"] {
			t.Errorf("the other cluster has %+v, before %+v", after, before)
		}

		if r, err := Run(t.Context(), config(old, "old")); err != nil || r != (Result{Claimed: true}) {
			t.Errorf("the second run: %+v, %v", r, err)
		}
		if again, err := old.LastClaim(t.Context()); err != nil || again.Position != c.Position {
			t.Errorf("the second run claimed again: %+v, %v", again, err)
		}
		late := config(old, "old")
		late.Now = func() time.Time { return time.Now().Add(2 * late.Retention) }
		if r, err := Run(t.Context(), late); err != nil || r.Deleted != 0 || r.Purged < objects-3 { // on Kafka, the newest delete in each partition stays
			t.Errorf("after the retention: %+v, %v", r, err)
		}
		if left := loaded(t, old); len(left) > 3 {
			t.Errorf("after the retention, there is %+v", left)
		}
	})
}

// lossy is a bus that may have lost events after the first load.
type lossy struct {
	publish.Bus
	loads int
}

func (l *lossy) Load(ctx context.Context, yield func(event.Key, event.Acked) error) error {
	l.loads++
	return l.Bus.Load(ctx, yield)
}

func (l *lossy) PossibleLosses() uint64 { return l.Bus.PossibleLosses() + uint64(min(l.loads, 1)) }

// TestForgetAfterAPossibleLoss verifies that Run loads the last events again if the bus may have lost a
// delete.
func TestForgetAfterAPossibleLoss(t *testing.T) {
	onBoth(t, func(t *testing.T, open bus) {
		old := &lossy{Bus: open("old")}
		create(t, old, "old", "a")
		r, err := Run(t.Context(), config(old, "old"))
		if err != nil || r != (Result{Deleted: 1}) || old.loads != 2 {
			t.Errorf("got %+v, %v, after %d loads", r, err, old.loads)
		}
	})
}

// TestForgetWithoutClaim verifies that a cluster without a claim can be forgotten. A forwarder without
// permission to read the cluster's UID makes no claim.
func TestForgetWithoutClaim(t *testing.T) {
	onBoth(t, func(t *testing.T, open bus) {
		old := open("old")
		create(t, old, "old", "a")
		if r, err := Run(t.Context(), config(old, "old")); err != nil || r != (Result{Deleted: 1}) {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}

// writing is a bus on which another writer changes an object before each publish.
type writing struct {
	publish.Bus
	write func()
}

func (w writing) Publish(ctx context.Context, m *event.Message, done func(uint64, error)) {
	w.write()
	w.Bus.Publish(ctx, m, done)
}

// TestSomebodyElseWrites verifies that Run does not overwrite the event of another writer, and ends.
func TestSomebodyElseWrites(t *testing.T) {
	s := natstest.Start(t)
	old, err := nats.Connect(t.Context(), nats.Options{Connection: nats.Connection{URLs: []string{s.URL}, Cluster: "old"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = old.Close() })
	if err := old.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	create(t, old, "old", "a")
	nc, err := natsgo.Connect(s.URL, natsgo.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err = Run(ctx, config(writing{old, func() {
		if _, err := nc.Request("kuberelay.old.core.configmaps.default.a", []byte("{}"), limit); err != nil {
			t.Error(err)
		}
	}}, "old"))
	if !errors.Is(err, ErrWritten) {
		t.Errorf("got %v", err)
	}
	for name, a := range loaded(t, old) {
		if a.Deleted {
			t.Errorf("%s is deleted: %+v", name, a)
		}
	}
}

// claimed is a bus that returns the given claim.
type claimed struct {
	publish.Bus
	claim event.Claim
}

func (c claimed) LastClaim(context.Context) (event.Claim, error) { return c.claim, nil }

// TestForgetALaterFormat verifies that Run deletes nothing if a later release wrote to the bus in a
// format that this release could misread.
func TestForgetALaterFormat(t *testing.T) {
	b, err := nats.Connect(t.Context(), nats.Options{Connection: nats.Connection{URLs: []string{natstest.Start(t).URL}, Cluster: "old"}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	create(t, b, "old", "a")
	r, err := Run(t.Context(), config(claimed{b, event.Claim{UID: "uid", Format: event.Format + 1}}, "old"))
	if err == nil || r != (Result{}) {
		t.Errorf("got %+v, %v", r, err)
	}
}

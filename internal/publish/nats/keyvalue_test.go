package nats

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// bucketIn returns the configuration of the key-value bucket in docs/subscribing.md, for the
// cluster of the tests.
func bucketIn(t *testing.T) (c jetstream.StreamConfig) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/subscribing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, config, found := strings.Cut(string(page), "```json\n")
	config, _, closed := strings.Cut(config, "```")
	if !found || !closed || !strings.Contains(config, "prod-eu1") {
		t.Fatal("docs/subscribing.md does not have the configuration of a bucket")
	}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(config, "prod-eu1", "test=2Ecluster")), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestKeyValue: the keys of a key-value bucket that sources or mirrors the stream are the
// existing objects.
func TestKeyValue(t *testing.T) {
	for _, mode := range []ContentMode{Binary, Structured} {
		for _, mirrors := range []bool{false, true} {
			name := string(mode) + " sourced"
			if mirrors {
				name = string(mode) + " mirrored"
			}
			t.Run(name, func(t *testing.T) { testKeyValue(t, mode, mirrors) })
		}
	}
}

func testKeyValue(t *testing.T, mode ContentMode, mirrors bool) {
	s := natstest.Start(t)
	bus := connect(t, Options{URLs: []string{s.URL}, Cluster: publishtest.Cluster, ContentMode: mode})
	waitReady(t, bus)
	js, config := observe(t, s.URL), bucketIn(t)
	if mirrors {
		config.Mirror, config.Sources = config.Sources[0], nil
	}
	live, last := map[string]string{}, map[string]uint64{}
	put := func(o publishtest.Object) {
		m := o.Message(t, last[o.Name])
		last[o.Name] = publishOK(t, bus, m)
		_, key, _ := strings.Cut(m.Subject("", publishtest.Cluster), ".")
		if live[key] = string(m.Data); mode == Structured {
			body, err := m.Structured()
			if err != nil {
				t.Fatal(err)
			}
			live[key] = string(body)
		}
		if o.Deleted {
			delete(live, key)
		}
	}
	marker, err := event.Builder{Cluster: publishtest.Cluster}.Marker(event.SnapshotStarted, publishtest.Resource, "s1", 0, someTime)
	if err != nil {
		t.Fatal(err)
	}
	publishOK(t, bus, marker)
	put(publishtest.Object{Name: "stays", Version: 1})
	put(publishtest.Object{Name: "gone before", Version: 2})
	put(publishtest.Object{Name: "gone before", Version: 3, Deleted: true})
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	bucket, err := js.KeyValue(t.Context(), strings.TrimPrefix(config.Name, "KV_"))
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := bucket.WatchAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { watcher.Stop() })
	watched := map[string]string{}
	put(publishtest.Object{Name: "stays", Version: 4, Data: "é"})
	put(publishtest.Object{Name: "gone", Version: 5})
	put(publishtest.Object{Name: "gone", Version: 6, Deleted: true})
	put(publishtest.Object{Name: "back", Version: 7})
	put(publishtest.Object{Name: "back", Version: 8, Deleted: true})
	put(publishtest.Object{Name: "back", UID: "another", Version: 9})
	waitFor(t, "the keys of the watcher are the existing objects", func() bool {
		for {
			select {
			case e := <-watcher.Updates():
				switch {
				case e == nil: // the end of the initial values
				case e.Operation() == jetstream.KeyValuePut:
					watched[e.Key()] = string(e.Value())
				default:
					delete(watched, e.Key())
				}
			default:
				return maps.Equal(watched, live)
			}
		}
	})
	keys, err := bucket.Keys(t.Context())
	slices.Sort(keys)
	if want := slices.Sorted(maps.Keys(live)); err != nil || !slices.Equal(keys, want) {
		t.Errorf("keys %q, %v, want %q", keys, err, want)
	}
	for key, want := range live {
		if e, err := bucket.Get(t.Context(), key); err != nil || string(e.Value()) != want {
			t.Errorf("get %s: %v, %v, want %s", key, e, err, want)
		}
	}
}

// TestKeyValueControl: the subjects that docs/subscribing.md adds to the bucket bring the claim
// and the consistency points, under the documented keys.
func TestKeyValueControl(t *testing.T) {
	page, err := os.ReadFile("../../../docs/subscribing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(page), "```text\n{\"src\"")
	list, _, closed := strings.Cut("[{\"src\""+list, "```")
	config := bucketIn(t)
	var control []jetstream.SubjectTransformConfig
	if err := json.Unmarshal([]byte(strings.ReplaceAll(list, "prod-eu1", "test=2Ecluster")+"]"), &control); err != nil || !found || !closed {
		t.Fatalf("docs/subscribing.md does not have the subjects of the claim and the points: %v", err)
	}
	config.Sources[0].SubjectTransforms = append(config.Sources[0].SubjectTransforms, control...)
	s := natstest.Start(t)
	waitReady(t, connect(t, Options{URLs: []string{s.URL}, Cluster: publishtest.Cluster}))
	js := observe(t, s.URL)
	var want []string
	for _, key := range []string{"prod-eu1._control.cluster._.claimed", "prod-eu1._control.resolved.apps.deployments"} {
		if !strings.Contains(string(page), "`"+key+"`") {
			t.Errorf("docs/subscribing.md does not name the key %s", key)
		}
		key = strings.ReplaceAll(key, "prod-eu1", "test=2Ecluster")
		want = append(want, key)
		if _, err := js.Publish(t.Context(), "kuberelay."+key, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	bucket, err := js.KeyValue(t.Context(), "objects")
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the bucket has the claim and the point", func() bool {
		keys, err := bucket.Keys(t.Context())
		slices.Sort(keys)
		return err == nil && slices.Equal(keys, want)
	})
}

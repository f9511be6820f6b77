package nats

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// bucketIn returns the configuration of the key-value bucket in docs/subscribing.md, adapted to the
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

// TestKeyValue verifies that the keys of a key-value bucket that sources or mirrors the stream are
// the existing objects, even if the bucket copies everything of two clusters.
func TestKeyValue(t *testing.T) {
	for _, mode := range []ContentMode{Binary, Structured} {
		for _, how := range []string{"sourced", "mirrored", "everything"} {
			t.Run(string(mode)+" "+how, func(t *testing.T) { testKeyValue(t, mode, how) })
		}
	}
}

func testKeyValue(t *testing.T, mode ContentMode, how string) {
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}, ContentMode: mode})
	waitReady(t, bus)
	js, config := observe(t, s.URL), bucketIn(t)
	switch how {
	case "mirrored":
		config.Mirror, config.Sources = config.Sources[0], nil
	case "everything":
		config.Sources[0].SubjectTransforms = []jetstream.SubjectTransformConfig{{Source: "kuberelay.>", Destination: "$KV.objects.>"}}
	}
	live, last := map[string]string{}, map[string]uint64{}
	put := func(o publishtest.Object) {
		m := o.Message(t, last[o.Name])
		last[o.Name] = publishOK(t, bus, m)
		_, key, _ := strings.Cut(subject.Message("", publishtest.Cluster, m), ".")
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
	for _, m := range control(t, publishtest.Cluster) {
		publishOK(t, bus, m)
	}
	if how == "everything" {
		other := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: "other"}, ContentMode: mode})
		waitReady(t, other)
		for _, m := range control(t, "other") {
			publishOK(t, other, m)
		}
		m := publishtest.Object{Name: "stays", Version: 1}.Message(t, 0)
		publishOK(t, other, m)
		_, key, _ := strings.Cut(subject.Message("", "other", m), ".")
		if live[key] = string(m.Data); mode == Structured {
			body, err := m.Structured()
			if err != nil {
				t.Fatal(err)
			}
			live[key] = string(body)
		}
	}
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
	poll.Holds(t, "the keys of the watcher are the existing objects", func() bool {
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

// control returns a claim, the markers of a first sync, and a consistency point.
func control(t *testing.T, cluster string) (all []*event.Message) {
	t.Helper()
	b := event.Builder{Cluster: cluster}
	for _, build := range []func() (*event.Message, error){
		func() (*event.Message, error) {
			return b.ClusterClaimed(event.Claim{UID: "uid-of-" + cluster, Claimed: someTime, Stream: "the stream"})
		},
		func() (*event.Message, error) {
			return b.Marker(event.SnapshotStarted, publishtest.Resource, "s1", 0, someTime)
		},
		func() (*event.Message, error) {
			return b.Marker(event.SnapshotCompleted, publishtest.Resource, "s1", 2, someTime)
		},
		func() (*event.Message, error) {
			return b.Resolved(event.Point{Resource: publishtest.Resource, Version: "9", AsOf: someTime, Taken: someTime})
		},
	} {
		m, err := build()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// TestControlOfAnEarlierRelease verifies that a claim and a marker of an earlier release, which lack
// the KV-Operation header, count as rows. LastClaim reports that for the claim, and LastMarker
// ignores the marker. When both are written again, they are no longer rows.
func TestControlOfAnEarlierRelease(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	waitReady(t, bus)
	js, all := observe(t, s.URL), control(t, publishtest.Cluster)
	for _, m := range all[:3] {
		msg, err := binding.Encode(m, false, binding.NewHeader())
		if err != nil {
			t.Fatal(err)
		}
		msg.Subject = subject.Message("kuberelay", publishtest.Cluster, m)
		msg.Header.Del("KV-Operation")
		delete(msg.Header, jetstream.ExpectedLastSubjSeqHeader)
		if _, err := js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	look := func() (event.Claim, event.Type) {
		t.Helper()
		claim, err := bus.LastClaim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		typ, _, err := bus.LastMarker(t.Context(), publishtest.Resource.GroupResource())
		if err != nil {
			t.Fatal(err)
		}
		return claim, typ
	}
	claim, typ := look()
	if claim.UID != "uid-of-"+publishtest.Cluster || !claim.IsRow || typ != "" {
		t.Errorf("got the claim %+v and the marker %q", claim, typ)
	}
	all[0].Expected = claim.Position
	for _, m := range all {
		publishOK(t, bus, m)
	}
	if claim, typ := look(); claim.UID != "uid-of-"+publishtest.Cluster || claim.IsRow || typ != event.SnapshotCompleted {
		t.Errorf("written again: got the claim %+v and the marker %q", claim, typ)
	}
}

// TestKeyValueControl verifies the subjects that docs/subscribing.md adds to the bucket. With these,
// a watcher receives the claim and the consistency points under the documented keys, and the bucket
// has no additional keys.
func TestKeyValueControl(t *testing.T) {
	page, err := os.ReadFile("../../../docs/subscribing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(page), "```text\n{\"src\"")
	list, _, closed := strings.Cut("[{\"src\""+list, "```")
	config := bucketIn(t)
	var more []jetstream.SubjectTransformConfig
	if err := json.Unmarshal([]byte(strings.ReplaceAll(list, "prod-eu1", "test=2Ecluster")+"]"), &more); err != nil || !found || !closed {
		t.Fatalf("docs/subscribing.md does not have the subjects of the claim and the points: %v", err)
	}
	config.Sources[0].SubjectTransforms = append(config.Sources[0].SubjectTransforms, more...)
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	waitReady(t, bus)
	js := observe(t, s.URL)
	for _, m := range control(t, publishtest.Cluster) {
		publishOK(t, bus, m)
	}
	var want []string
	for _, key := range []string{"prod-eu1._control.cluster._.claimed", "prod-eu1._control.resolved.apps.deployments"} {
		if !strings.Contains(string(page), "`"+key+"`") {
			t.Errorf("docs/subscribing.md does not name the key %s", key)
		}
		want = append(want, strings.ReplaceAll(key, "prod-eu1", "test=2Ecluster"))
	}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	bucket, err := js.KeyValue(t.Context(), "objects")
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := bucket.WatchAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { watcher.Stop() })
	got := map[string]string{}
	poll.Holds(t, "a watcher has the claim and the point", func() bool {
		for {
			select {
			case e := <-watcher.Updates():
				if e != nil {
					got[e.Key()] = string(e.Operation()) + " " + string(e.Value())
				}
			default:
				return slices.Equal(slices.Sorted(maps.Keys(got)), want)
			}
		}
	})
	for key, value := range map[string]string{want[0]: `"stream":"the stream"`, want[1]: `"asOf":`} {
		if !strings.Contains(got[key], value) {
			t.Errorf("%s is %s, want %s", key, got[key], value)
		}
	}
	if keys, err := bucket.Keys(t.Context()); !errors.Is(err, jetstream.ErrNoKeysFound) {
		t.Errorf("keys %q, %v, want none", keys, err)
	}
}

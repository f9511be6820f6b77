package kafka

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// removal returns an event of type Deleted or Deselected.
func (w *writers) removal(typ event.Type, k event.Key, expected uint64) *event.Message {
	w.t.Helper()
	r := event.Resource{Group: k.Group, Version: "v1", Resource: k.Resource, Kind: "Kind", Namespaced: true}
	m, err := event.Builder{Cluster: w.opts.Cluster}.Message(event.Change{
		Type: typ, Key: k, Resource: r, Cause: event.CauseWatch, Observed: time.Now(),
		Object: &event.Object{APIVersion: r.APIVersion(), Kind: "Kind", Namespace: k.Namespace, Name: k.Name, UID: types.UID("uid-of-" + k.Name), ResourceVersion: "2"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	m.Expected = expected
	return m
}

// messageIn returns the first event of an object whose events are in a partition.
func (w *writers) messageIn(partition int, name string) *event.Message {
	w.t.Helper()
	for i := 0; ; i++ {
		m := w.message(fmt.Sprint(name, "-", i), 1, 0)
		if binding.Partition([]byte(event.PartitionKey(w.opts.Cluster, m.Key)), w.opts.Partitions) == partition {
			return m
		}
	}
}

// acked returns the last events that a bus loads.
func (w *writers) acked(b *Bus) (map[event.Key]event.Acked, error) {
	all := map[event.Key]event.Acked{}
	err := b.Load(w.t.Context(), func(k event.Key, a event.Acked) error {
		all[k] = a
		if a == (event.Acked{}) {
			delete(all, k)
		}
		return nil
	})
	return all, err
}

// TestTheCheckpointTopicLosesTheEndOfAPartition_Slow verifies that a bus loads what the event topic
// holds after one partition of the checkpoint topic lost its end. The lost end has the removals of
// two objects, and also the only earlier event of one of them. The other partition of the
// checkpoint topic keeps its end, and the event topic loses nothing. In an earlier version, the
// removals counted as recorded because of a record in the other partition.
func TestTheCheckpointTopicLosesTheEndOfAPartition_Slow(t *testing.T) {
	const lossy = 1 // the affected partition of both topics
	for name, c := range map[string]struct {
		anew  bool // whether the next writer starts before the loss is noticed
		whole bool // whether the whole partition is lost, or only the records of the last two writers
	}{"the next writer": {anew: true}, "the next writer, all is lost": {anew: true, whole: true}, "the session lasts": {}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			kb := kafkabrokertest.Start(t, kafkabroker.Options{Dir: dir})
			w := &writers{t, testOptions(kb.Addr())}
			w.opts.Partitions = 2
			log, earlier := logOf(dir, DefaultCheckpointTopic(w.opts.Topic), lossy), filepath.Join(t.TempDir(), "earlier")
			b := w.open()
			shown, fleeting := w.messageIn(lossy, "shown"), w.messageIn(lossy, "fleeting")
			at := w.mustPublish(b, shown)
			w.flushed(b)
			crash(b)
			kb.Stop()
			copyDirectory(t, earlier, log)
			kb.Start()

			b = w.open()
			w.mustPublish(b, w.removal(event.Deleted, shown.Key, at))
			last := w.mustPublish(b, w.removal(event.Deselected, fleeting.Key, w.mustPublish(b, fleeting)))
			if publish.Partition(last) != lossy {
				t.Fatalf("the events are in partition %d", publish.Partition(last))
			}
			w.flushed(b)
			crash(b)
			b = w.open() // its markers are beyond the removals
			want, err := w.acked(b)
			if err != nil || len(want) != 2 || want[shown.Key].Live() || want[fleeting.Key].Position != last {
				t.Fatalf("loaded %v, %v", want, err)
			}
			w.flushed(b)
			if c.anew {
				crash(b)
			}
			kb.Stop()
			if err := os.RemoveAll(log); err != nil {
				t.Fatal(err)
			}
			if !c.whole {
				copyDirectory(t, log, earlier)
			}
			kb.Start()
			if c.anew {
				b = w.open()
			}
			for range 2 { // the first takeover records what it finds for the second
				await(t, "loaded", func() error {
					got, err := w.acked(b)
					if err == nil && !maps.Equal(got, want) {
						t.Fatalf("loaded %v, want %v", got, want)
					}
					return err
				})
				crash(b)
				b = w.open()
			}
		})
	}
}

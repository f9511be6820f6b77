package kafka

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// brokerOfOne starts a broker and returns writers to a topic with one partition. The test
// changes its log while the broker is stopped.
func brokerOfOne(t *testing.T) (w *writers, kb *kafkabrokertest.Broker, log string) {
	t.Helper()
	dir := t.TempDir()
	kb = kafkabrokertest.Start(t, kafkabroker.Options{Dir: dir})
	w = &writers{t, testOptions(kb.Addr())}
	w.opts.Partitions = 1
	return w, kb, logOf(dir, w.opts.Topic, 0)
}

// flushed waits until everything is recorded and returns the session.
func (w *writers) flushed(b *Bus) *session {
	w.t.Helper()
	s, err := b.current()
	if err == nil {
		err = s.flush(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// wantLost waits until a bus loads exactly the events that are left. It fails the test if the bus
// ever loads the lost event.
func (w *writers) wantLost(b *Bus, lost event.Key, left map[event.Key]uint64) {
	w.t.Helper()
	await(w.t, "the bus loads the events that are left", func() error {
		got := map[event.Key]uint64{}
		err := b.Load(w.t.Context(), func(k event.Key, a event.Acked) error {
			delete(got, k)
			if a.Live() {
				got[k] = a.Position
			}
			return nil
		})
		if err == nil && got[lost] != 0 {
			w.t.Fatalf("the lost event of %s is loaded at %d", lost, got[lost])
		}
		if err == nil && !maps.Equal(got, left) {
			err = fmt.Errorf("loaded %v, want %v", got, left)
		}
		return err
	})
}

// TestALostLogIsWrittenTo_Slow verifies that a bus detects the complete loss of a partition even if the
// log has grown beyond its old length. Another cluster that shares the topic writes to it, and then
// the session does. The session's last record is in its place, but says nothing about the earlier
// ones.
func TestALostLogIsWrittenTo_Slow(t *testing.T) {
	for _, anew := range []bool{false, true} { // whether the next writer starts before the loss is noticed
		t.Run(fmt.Sprint("started anew ", anew), func(t *testing.T) {
			w, kb, log := brokerOfOne(t)
			b := w.open()
			w.publishSome(b, "web-", 3)
			s := w.flushed(b)
			kb.Stop()
			if err := os.RemoveAll(log); err != nil {
				t.Fatal(err)
			}
			kb.Start()
			await(t, "ready", b.Ready)
			other := &writers{t, w.opts}
			other.opts.Cluster, other.opts.CheckpointTopic = "another", "another.checkpoint"
			other.publishSome(other.open(), "web-", 10)
			m := w.message("new", 1, 0)
			left := map[event.Key]uint64{}
			await(t, "published", func() (err error) {
				left[m.Key], err = w.publish(b, m)
				return err
			})
			if w.flushed(b) != s {
				t.Fatal("the loss was noticed before the event was written")
			}
			if anew {
				crash(b)
				b = w.open()
			}
			w.wantLost(b, w.message("web-0", 1, 0).Key, left)
			crash(b)
			w.wantLoaded(w.open(), left)
		})
	}
}

// TestALostTailEndsWithATombstone_Slow verifies that a bus detects a lost tail that ends with a
// tombstone. Compaction can remove a tombstone that is the last record of a partition, but it never
// shortens the log.
func TestALostTailEndsWithATombstone_Slow(t *testing.T) {
	w, kb, log := brokerOfOne(t)
	w.opts.Tombstones = true
	b := w.open()
	gone := w.message("web-0", 1, 0)
	deleted := w.mustPublish(b, w.deletion(gone.Key, w.mustPublish(b, gone)))
	w.flushed(b)
	kb.Stop()
	earlier := filepath.Join(t.TempDir(), "earlier")
	copyDirectory(t, earlier, log)
	kb.Start()
	await(t, "ready", b.Ready)
	lost := w.message("lost", 1, 0)
	await(t, "published", func() error {
		_, err := w.publish(b, lost)
		return err
	})
	if err := b.Purge(t.Context(), gone.Key, deleted); err != nil {
		t.Fatal(err)
	}
	w.flushed(b)
	kb.Stop()
	if err := os.RemoveAll(log); err != nil {
		t.Fatal(err)
	}
	copyDirectory(t, log, earlier)
	kb.Start()
	await(t, "ready", b.Ready)
	w.wantLost(b, lost.Key, map[event.Key]uint64{})
}

// TestALostTailHadAPurgedDelete_Slow verifies that a bus detects a lost tail that starts with a purged
// delete. The entries of later events must reveal the loss. Otherwise, no forwarder would know the
// object, which exists according to the topic.
func TestALostTailHadAPurgedDelete_Slow(t *testing.T) {
	for _, tombstones := range []bool{false, true} {
		t.Run(fmt.Sprint("tombstones ", tombstones), func(t *testing.T) {
			w, kb, log := brokerOfOne(t)
			w.opts.Tombstones = tombstones
			b := w.open()
			shown, stays, last := w.message("shown", 1, 0), w.message("stays", 1, 0), w.message("last", 1, 0)
			left := map[event.Key]uint64{shown.Key: w.mustPublish(b, shown), stays.Key: w.mustPublish(b, stays), last.Key: w.mustPublish(b, last)}
			w.flushed(b)
			kb.Stop()
			earlier := filepath.Join(t.TempDir(), "earlier")
			copyDirectory(t, earlier, log)
			kb.Start()
			await(t, "ready", b.Ready)
			var deleted uint64
			await(t, "published", func() (err error) {
				deleted, err = w.publish(b, w.deletion(shown.Key, left[shown.Key]))
				return err
			})
			if err := b.Purge(t.Context(), shown.Key, deleted); !errors.Is(err, event.ErrNewest) {
				t.Errorf("a purge of the newest event gives %v, want %v", err, event.ErrNewest)
			}
			other := w.mustPublish(b, w.deletion(stays.Key, left[stays.Key]))
			if err := b.Purge(t.Context(), shown.Key, deleted); err != nil {
				t.Errorf("a purge of an event that is no longer the newest gives %v", err)
			}
			if err := b.Purge(t.Context(), stays.Key, other); !errors.Is(err, event.ErrNewest) {
				t.Errorf("a purge of the newest event gives %v, want %v", err, event.ErrNewest)
			}
			w.flushed(b)
			crash(b)
			kb.Stop()
			if err := os.RemoveAll(log); err != nil {
				t.Fatal(err)
			}
			copyDirectory(t, log, earlier)
			kb.Start()
			b = w.open()
			w.wantLoaded(b, left)
			for k, position := range left { // the events of the first session precede this session's marker
				if err := b.Purge(t.Context(), k, position); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

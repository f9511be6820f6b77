package kafka

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// deletion returns an event that deletes an object.
func (w *writers) deletion(k event.Key, expected uint64) *event.Message {
	w.t.Helper()
	return w.removal(event.Deleted, k, expected)
}

// live returns the positions of the objects that exist according to the bus.
func (w *writers) live(b *Bus) map[event.Key]uint64 {
	w.t.Helper()
	all := map[event.Key]uint64{}
	if err := b.Load(w.t.Context(), func(k event.Key, a event.Acked) error {
		delete(all, k)
		if a.Live() {
			all[k] = a.Position
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return all
}

// TestARestoredLog_Slow verifies that no delete is lost if the log of the event topic is restored from
// an earlier copy. The copy lacks all deletes, which the checkpoint topic has recorded. Load
// returns the objects as existing, so that each delete is published again. In an earlier version,
// 78 of 80 deletes were lost permanently.
func TestARestoredLog_Slow(t *testing.T) {
	const objects = 80
	for _, anew := range []bool{false, true} { // whether another writer starts before the loss is noticed
		t.Run(fmt.Sprint("started anew ", anew), func(t *testing.T) {
			dir := t.TempDir()
			kb := kafkabrokertest.Start(t, kafkabroker.Options{Dir: dir})
			o := testOptions(kb.Addr())
			o.Partitions = 3
			w := &writers{t, o}
			b := w.open()
			want := w.publishSome(b, "web-", objects)
			w.flushed(b)
			kb.Stop()
			copies := t.TempDir()
			for p := range o.Partitions {
				copyDirectory(t, filepath.Join(copies, fmt.Sprint(p)), logOf(dir, o.Topic, p))
			}
			kb.Start()
			await(t, "ready", b.Ready)
			for k, position := range want {
				await(t, "published", func() error {
					_, err := w.publish(b, w.deletion(k, position))
					return err
				})
			}
			await(t, "recorded", func() error {
				s, err := b.current()
				if err != nil {
					return err
				}
				return s.flush(t.Context())
			})
			if anew {
				crash(b)
			}
			kb.Stop()
			for p := range o.Partitions {
				if err := os.RemoveAll(logOf(dir, o.Topic, p)); err != nil {
					t.Fatal(err)
				}
				copyDirectory(t, logOf(dir, o.Topic, p), filepath.Join(copies, fmt.Sprint(p)))
			}
			kb.Start()
			if anew {
				b = w.open()
			}
			await(t, "the bus loads what the topic shows", func() error {
				if err := b.Ready(); err != nil {
					return err
				}
				got := map[event.Key]uint64{}
				err := b.Load(t.Context(), func(k event.Key, a event.Acked) error {
					delete(got, k)
					if a.Live() {
						got[k] = a.Position
					}
					return nil
				})
				if err == nil && !maps.Equal(got, want) {
					err = fmt.Errorf("of %d objects, the bus loads %d", objects, len(got))
				}
				return err
			})
			for k, position := range want {
				w.mustPublish(b, w.deletion(k, position))
			}
			crash(b)
			if got := w.live(w.open()); len(got) > 0 {
				t.Errorf("after the deletes were published again %d objects are shown", len(got))
			}
		})
	}
}

func logOf(dir, topic string, partition int) string {
	return filepath.Join(dir, "data", fmt.Sprint(topic, "-", partition))
}

func copyDirectory(t *testing.T, to, from string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

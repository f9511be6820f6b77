package reader

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/readertest"
)

// TestRecreatedTopic verifies that a subscription detects that its topic was deleted and recreated, even
// if the new topic is longer than the part of the old one that was read. In an earlier version, it
// continued at its offset, and skipped the first events of the new topic.
func TestRecreatedTopic(t *testing.T) {
	for _, tc := range []struct {
		name      string
		untilLost bool
		want      error
	}{{"reads the new topic from its start", false, errEnough}, {"ends with UntilLost", true, publish.ErrLost}} {
		t.Run(tc.name, func(t *testing.T) {
			w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "recreated", 1, nil)
			b := open(t, Options{Topic: w.Topic}, kafkabrokertest.Shared(t).Addr())
			put(t, w, "old", 1, 2, 3)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			var got []string
			paused, result := make(chan context.CancelFunc, 1), make(chan error, 1)
			go func() {
				o := publish.SubscribeOptions{From: publish.FromStart, UntilLost: tc.untilLost}
				result <- b.Subscribe(ctx, o, func(m *event.Message, _ publish.Delivery) error {
					got = append(got, m.ID)
					switch {
					case m.ID == "uid-of-old.3":
						pause, resume := context.WithCancel(ctx)
						paused <- resume
						<-pause.Done()
					case m.ID == "uid-of-new.5" && slices.Contains(got, "uid-of-new.1"):
						return errEnough
					}
					return nil
				})
			}()
			var resume func()
			select {
			case resume = <-paused:
			case err := <-result:
				t.Fatal(err)
			}
			w.Recreate()
			put(t, w, "new", 1, 2, 3, 4, 5)
			resume()
			if err := <-result; !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if want := ids("new", 1, 2, 3, 4, 5); !tc.untilLost && (len(got) < len(want) || !slices.Equal(got[len(got)-len(want):], want)) {
				t.Errorf("got %q, want it to end with %q", got, want)
			}
		})
	}
}

var errEnough = errors.New("enough")

// TestScanOfARecreatedTopic verifies that a scan returns ErrChanged after its topic was recreated, even if
// the new topic is longer.
func TestScanOfARecreatedTopic(t *testing.T) {
	w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "recreated", 1, nil)
	s := open(t, Options{Topic: w.Topic}, kafkabrokertest.Shared(t).Addr()).Scan()
	put(t, w, "old", 1, 2, 3)
	scanned(t, s)
	w.Recreate()
	put(t, w, "new", 1, 2, 3, 4, 5)
	err := s.NextRaw(t.Context(), func(Record, publish.Delivery) error { return nil }, func(publish.Delivery, error) {})
	if !errors.Is(err, ErrChanged) {
		t.Errorf("got %v, want that it changed", err)
	}
}

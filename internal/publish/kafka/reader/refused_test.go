package reader

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/readertest"
)

// TestBatchThatCannotBeRead verifies that every kind of read reports a batch that cannot be read,
// and returns the events after it.
func TestBatchThatCannotBeRead(t *testing.T) {
	w := readertest.NewTopic(t, kafkabrokertest.Shared(t), "refused", 1, nil)
	b := open(t, Options{Topic: w.Topic, Cluster: cluster}, kafkabrokertest.Shared(t).Addr())
	put(t, w, "a", 1)
	at := w.PutRecord(0, recordbatch.Record{Key: []byte("anything"), Value: make([]byte, recordbatch.MaxRecord)})
	put(t, w, "a", 2)
	want := []string{"uid-of-a.1", fmt.Sprintf("refused at %d", at), "uid-of-a.2"}

	var got []string
	refused := func(d publish.Delivery, err error) {
		if !errors.Is(err, recordbatch.ErrTooLarge) {
			t.Errorf("at %s: %v", d.Place(), err)
		}
		got = append(got, fmt.Sprintf("refused at %d", d.Position))
	}
	if err := b.Scan().NextRaw(t.Context(), func(broker.Record, publish.Delivery) error { return nil }, refused); err != nil || !slices.Equal(got, want[1:2]) {
		t.Errorf("NextRaw: got %q, %v, want %q", got, err, want[1:2])
	}
	o, enough := publish.SubscribeOptions{Foreign: refused}, errors.New("enough")
	for from, wants := range map[publish.From][]string{publish.FromStart: want, publish.FromLast: want[1:]} {
		got = nil
		o.From = from
		err := b.Subscribe(t.Context(), o, func(m *event.Message, d publish.Delivery) error {
			if got = append(got, m.ID); m.ID != "uid-of-a.2" {
				return nil
			}
			if d.Whole {
				t.Error("a batch is missing before the event")
			}
			return enough
		})
		if !errors.Is(err, enough) || !slices.Equal(got, wants) {
			t.Errorf("Subscribe from %d: got %q, %v, want %q", from, got, err, wants)
		}
	}
}

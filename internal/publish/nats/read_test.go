package nats

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

func TestRead(t *testing.T) {
	for _, mode := range []ContentMode{Binary, Structured} {
		t.Run(string(mode), func(t *testing.T) {
			s := natstest.Start(t)
			bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}, ContentMode: mode})
			web := publishtest.Object{Name: "web"}
			var want []publish.Stored
			var position uint64
			for v := 1; v <= 3; v++ {
				o := publishtest.Object{Name: "web", Version: v, Data: "é\"", Deleted: v == 3}
				m := o.Message(t, position)
				position = publishOK(t, bus, m)
				acked := m.Acked
				acked.Position = position
				object, err := event.ObjectFromData(m.Attribute, m.Data)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, publish.Stored{Acked: acked, Object: object})
			}
			for _, w := range want {
				wantStored(t, bus, web.Key(), w.Acked.Position, w)
			}
			other := publishOK(t, bus, publishtest.Object{Name: "other", Version: 1}.Message(t, 0))
			if got, err := bus.At(t.Context(), web.Key(), other); err == nil {
				t.Errorf("another object's position gives %+v, want an error", got)
			}
			wantStored(t, bus, web.Key(), 1000, publish.Stored{})
		})
	}
}

// sameText compares bodies by their JSON text.
var sameText = cmp.Transformer("text", func(b event.Body) string {
	text, err := b.JSON()
	if err != nil {
		return err.Error()
	}
	return string(text)
})

// wantStored compares want with the result of At.
func wantStored(t *testing.T, bus *Bus, k event.Key, position uint64, want publish.Stored) {
	t.Helper()
	got, err := bus.At(t.Context(), k, position)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, whenever, sameText); diff != "" {
		t.Errorf("%s at %d (-want +got):\n%s", k, position, diff)
	}
}

// TestStored verifies that every way to read a delete returns the time at which the stream stored
// the delete. The retention of the delete depends on that time.
func TestStored(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	m := publishtest.Object{Name: "web", Version: 1, Deleted: true}.Message(t, 0)
	position := publishOK(t, bus, m)
	meta, err := readMessages(t, s.URL, subjectOf(m.Key))[0].Metadata()
	if err != nil {
		t.Fatal(err)
	}
	want := meta.Timestamp.UnixMilli()
	at, err := bus.At(t.Context(), m.Key, position)
	if err != nil {
		t.Fatal(err)
	}
	_, err = publishNow(t, bus, publishtest.Object{Name: "web", Version: 2}.Message(t, 0))
	var conflict *publish.ConflictError
	if !errors.As(err, &conflict) {
		t.Fatalf("error is %v, want a conflict", err)
	}
	for name, got := range map[string]int64{
		"At": at.Acked.Time, "Load": load(t, bus)[m.Key].Time, "a conflict": conflict.Bus.Time,
	} {
		if got != want {
			t.Errorf("%s says stored at %d, want %d", name, got, want)
		}
	}
}

func TestReadForeign(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	js := observe(t, s.URL)
	m := publishtest.Object{Name: "web", Version: 5}.Message(t, 0)
	body, err := m.Structured()
	if err != nil {
		t.Fatal(err)
	}
	msg, err := binding.Encode(m, false, binding.NewHeader())
	if err != nil {
		t.Fatal(err)
	}
	for position, test := range []struct {
		name    string
		headers natsgo.Header
		data    []byte
		want    event.Acked
		object  bool
	}{
		{"nothing of ours", nil, []byte("hello"), event.Acked{}, false},
		{"structured, without our headers", natsgo.Header{"Content-Type": {event.ContentTypeStructured}}, body, m.Acked, true},
		{"data of something else", msg.Header, []byte("hello"), m.Acked, false},
	} {
		if _, err := js.PublishMsg(t.Context(), &natsgo.Msg{Subject: subjectOf(m.Key), Header: withoutExpectation(test.headers), Data: test.data}); err != nil {
			t.Fatal(err)
		}
		test.want.Position = firstOf(t, bus) + uint64(position)
		got, err := bus.At(t.Context(), m.Key, test.want.Position)
		if err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(got.Acked, test.want, whenever) || (got.Object != nil) != test.object {
			t.Errorf("%s: got %+v with object %v, want %+v", test.name, got.Acked, got.Object, test.want)
		}
	}
}

func withoutExpectation(h natsgo.Header) natsgo.Header {
	kept := natsgo.Header{}
	for k, v := range h {
		if k != "Nats-Expected-Last-Subject-Sequence" {
			kept[k] = v
		}
	}
	return kept
}

func TestPurge(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	k := publishtest.Object{Name: "web"}.Key()
	var positions []uint64
	for v := 1; v <= 4; v++ {
		expected := uint64(0)
		if v > 1 {
			expected = positions[v-2]
		}
		positions = append(positions, publishOK(t, bus, publishtest.Object{Name: "web", Version: v}.Message(t, expected)))
	}
	other := publishtest.Object{Name: "other", Version: 1}.Message(t, 0)
	publishOK(t, bus, other)
	left := func() int { return len(readEvents(t, s.URL, k)) }
	for _, test := range []struct {
		upTo uint64
		want int
	}{
		{0, 4},
		{positions[2], 1}, // positions[3] is later, so it stays
		{positions[2], 1}, // the same again
		{positions[0], 1},
		{positions[3], 0},
		{positions[3] + 100, 0},
	} {
		if err := bus.Purge(t.Context(), k, test.upTo); err != nil {
			t.Fatal(err)
		}
		if got := left(); got != test.want {
			t.Errorf("after purging up to %d the bus holds %d events, want %d", test.upTo, got, test.want)
		}
	}
	if got := len(readEvents(t, s.URL, other.Key)); got != 1 {
		t.Errorf("another object has %d events, want 1", got)
	}
}

// TestReadDisconnected verifies that reads without a connection fail at once.
func TestReadDisconnected(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	s.Stop()
	poll.Holds(t, "disconnected", func() bool { return bus.Ready() != nil })
	k := publishtest.Object{Name: "web"}.Key()
	if _, err := bus.At(t.Context(), k, 1); err == nil {
		t.Error("At: no error")
	}
	if err := bus.Purge(t.Context(), k, 1); err == nil {
		t.Error("Purge: no error")
	}
}

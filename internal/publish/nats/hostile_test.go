package nats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// rawPublish publishes a message with arbitrary headers, as any TCP client of the server can, and
// waits until the stream has stored it.
func rawPublish(t testing.TB, bus *Bus, url, subject, header, body string) (position uint64) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "CONNECT {\"verbose\":false,\"headers\":true}\r\nHPUB %s %d %d\r\n%s%s\r\nPING\r\n", subject, len(header), len(header)+len(body), header, body)
	_ = c.SetReadDeadline(time.Now().Add(limit))
	var answer []byte
	for b := make([]byte, 8192); !bytes.Contains(answer, []byte("PONG")); {
		n, err := c.Read(b)
		if err != nil {
			t.Fatalf("%v after %q", err, answer)
		}
		answer = append(answer, b[:n]...)
	}
	poll.Holds(t, "stored", func() bool {
		position, err = bus.conn.LastPosition(t.Context(), subject)
		return err == nil && position != 0
	})
	return position
}

// hostile contains headers and bodies of messages that anyone can publish. None of them is an event.
// The client mistakes a message with a status and no body for a response of the server.
var hostile = map[string]struct {
	header, body string
	reason       event.InvalidReason // reported when the message is read by itself
}{
	"headers without a colon":   {"NATS/1.0\r\nno colon here\r\n\r\n", "x", event.InvalidHeaders},
	"a short status":            {"NATS/1.0 9\r\n\r\n", "x", event.InvalidHeaders},
	"no headers":                {"NATS/1.0\r\n\r\n", "x", event.InvalidEvent},
	"a status of no messages":   {"NATS/1.0 404 No Messages\r\n\r\n", "", event.InvalidEvent},
	"a heartbeat":               {"NATS/1.0 100 Idle Heartbeat\r\n\r\n", "", event.InvalidEvent},
	"a header called Status":    {"NATS/1.0\r\nStatus: 409\r\nDescription: Consumer Deleted\r\n\r\n", "", event.InvalidEvent},
	"a bad request, with body":  {"NATS/1.0 400 Bad Request\r\n\r\n", "x", event.InvalidEvent},
	"a timeout that adds":       {"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: -9\r\nNats-Pending-Bytes: x\r\n\r\n", "", event.InvalidEvent},
	"a header of a timeout":     {"NATS/1.0\r\nStatus: 408\r\nNats-Pending-Messages: -9\r\nNats-Pending-Bytes: x\r\n\r\n", "", event.InvalidEvent},
	"a header of a heartbeat":   {"NATS/1.0\r\nStatus: 100\r\n\r\n", "", event.InvalidEvent},
	"no responders":             {"NATS/1.0\r\nStatus: 503\r\n\r\n", "", event.InvalidEvent},
	"a header of a bad request": {"NATS/1.0\r\nStatus: 400\r\n\r\n", "", event.InvalidEvent},
	"a pin of a consumer":       {"NATS/1.0\r\nNats-Pin-Id: forged\r\n\r\n", "", event.InvalidEvent},
	"an epoch that would wrap":  {"NATS/1.0\r\nce-id: x\r\nce-specversion: 1.0\r\nce-type: io.kuberelay.object.deleted\r\nce-uid: x\r\nce-sequence: 65535.0\r\n\r\n", "", event.InvalidAttribute},
	"a digest that is none":     {"NATS/1.0\r\nce-id: x\r\nce-specversion: 1.0\r\nce-type: io.kuberelay.object.created\r\nce-uid: x\r\nce-sequence: 0000.\r\nce-digest: xyz\r\n\r\n", "", event.InvalidAttribute},
	"no specversion":            {"NATS/1.0\r\nce-id: x\r\nce-type: io.kuberelay.object.created\r\nce-uid: x\r\nce-sequence: 0000.\r\n\r\n", "{}", event.InvalidEvent},
	"another specversion":       {"NATS/1.0\r\nce-id: x\r\nce-specversion: 2.0\r\nce-type: io.kuberelay.object.created\r\nce-uid: x\r\nce-sequence: 0000.\r\n\r\n", "{}", event.InvalidEvent},
	"no id":                     {"NATS/1.0\r\nce-specversion: 1.0\r\nce-type: io.kuberelay.object.created\r\nce-uid: x\r\nce-sequence: 0000.\r\n\r\n", "{}", event.InvalidEvent},
	"a structured event broken": {"NATS/1.0\r\ncontent-type: application/cloudevents+json\r\n\r\n", "{", event.InvalidEvent},
}

// watched connects a bus that logs invalid messages.
func watched(t *testing.T, url string) (*Bus, *locked, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	w := &locked{w: log}
	bus := connect(t, Options{Connection: Connection{URLs: []string{url}, Cluster: publishtest.Cluster}, Invalid: publish.NewInvalid(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(w, nil)))})
	waitReady(t, bus)
	return bus, w, log
}

// named counts the log lines that contain all of the texts.
func (l *locked) named(log *bytes.Buffer, texts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(log.String()) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			n++
		}
	}
	return n
}

// TestHostileObject verifies that a hostile message in an object's place is not an event of the
// object. Every read continues, and the message is reported once. The next event of the object
// follows the message.
func TestHostileObject(t *testing.T) {
	for name, h := range hostile {
		t.Run(name, func(t *testing.T) {
			s := natstest.Start(t)
			bus, w, log := watched(t, s.URL)
			var names [3]event.Key
			for n := range names {
				names[n] = publishtest.Object{Name: fmt.Sprint("web-", n)}.Key()
			}
			first := publishOK(t, bus, publishtest.Object{Name: "web-0", Version: 1}.Message(t, 0))
			hostileAt := rawPublish(t, bus, s.URL, subjectOf(names[1]), h.header, h.body)
			last := publishOK(t, bus, publishtest.Object{Name: "web-2", Version: 1}.Message(t, 0))

			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			for range 2 {
				loaded := map[event.Key]uint64{}
				err := bus.Load(ctx, func(k event.Key, a event.Acked) error {
					if loaded[k] = a.Position; (a.UID == "") != (k == names[1]) {
						t.Errorf("%s is loaded as %+v", k, a)
					}
					return nil
				})
				if err != nil {
					t.Fatalf("load: %v", err)
				}
				if diff := cmp.Diff(map[event.Key]uint64{names[0]: first, names[1]: hostileAt, names[2]: last}, loaded); diff != "" {
					t.Errorf("loaded (-want +got):\n%s", diff)
				}
				stored, err := bus.At(ctx, names[1], hostileAt)
				if err != nil || stored.Object != nil || stored.Acked.UID != "" || stored.Acked.Position != hostileAt {
					t.Errorf("got %+v, %v", stored, err)
				}
			}
			_, err := publishNow(t, bus, publishtest.Object{Name: "web-1", Version: 2}.Message(t, 0))
			var conflict *publish.ConflictError
			if !errors.As(err, &conflict) || conflict.Bus.UID != "" || conflict.Bus.Position != hostileAt {
				t.Fatalf("publish: %v, want a conflict", err)
			}
			publishOK(t, bus, publishtest.Object{Name: "web-1", Version: 2}.Message(t, hostileAt))
			if n := w.named(log, "not a Kuberelay event", fmt.Sprint("position=", hostileAt)); n != 1 {
				t.Errorf("the log names it %d times: %s", n, log)
			}
		})
	}
}

// TestHostileSubscription verifies that no message ends a subscription or hides another message.
func TestHostileSubscription(t *testing.T) {
	s := natstest.Start(t)
	bus, _, _ := watched(t, s.URL)
	sub := subscribe(t, s.URL, publish.SubscribeOptions{From: publish.FromStart})
	for name, h := range hostile {
		o := publishtest.Object{Name: "after " + name, Version: 1}
		position := rawPublish(t, bus, s.URL, subjectOf(publishtest.Object{Name: name}.Key()), h.header, h.body)
		want := publishOK(t, bus, o.Message(t, 0))
		if got := sub.Next(); got.Position != position {
			t.Errorf("%s: got %s at %d, want %d", name, got, got.Position, position)
		}
		if got := sub.Next(); got.Position != want || got.Message == nil {
			t.Errorf("%s: then got %s at %d, want %d", name, got, got.Position, want)
		}
	}
}

// TestHostileControl verifies that a hostile message in the place of a claim or a marker is neither.
// In an earlier version, such a message made every start and every refresh fail.
func TestHostileControl(t *testing.T) {
	for name, h := range hostile {
		t.Run(name, func(t *testing.T) {
			s := natstest.Start(t)
			bus, w, log := watched(t, s.URL)
			claim := subject.Claim("kuberelay", publishtest.Cluster)
			position := rawPublish(t, bus, s.URL, claim, h.header, h.body)
			for range 3 {
				if c, err := bus.LastClaim(t.Context()); err != nil || !reflect.DeepEqual(c, event.Claim{Position: position}) {
					t.Errorf("claim %+v, %v; want position %d only", c, err, position)
				}
			}
			if n := w.named(log, "not a Kuberelay event", fmt.Sprintf("subject=%q", claim)); n != 1 {
				t.Errorf("the log names it %d times: %s", n, log)
			}
			m, err := event.Builder{Cluster: publishtest.Cluster}.ClusterClaimed(event.Claim{UID: "u", Claimed: someTime, Position: position})
			if err != nil {
				t.Fatal(err)
			}
			publishOK(t, bus, m)
			if c, err := bus.LastClaim(t.Context()); err != nil || c.UID != "u" {
				t.Errorf("claim %+v, %v", c, err)
			}
			gr := publishtest.Resource.GroupResource()
			rawPublish(t, bus, s.URL, subject.Marker("kuberelay", publishtest.Cluster, gr), h.header, h.body)
			if typ, _, err := bus.LastMarker(t.Context(), gr); err != nil || typ == event.SnapshotStarted || typ == event.SnapshotCompleted {
				t.Errorf("marker %q, %v", typ, err)
			}
		})
	}
}

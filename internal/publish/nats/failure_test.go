package nats

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// limited connects a bus to a stream with size limits.
func limited(t *testing.T, limit func(*jetstream.StreamConfig)) (*Bus, jetstream.JetStream) {
	t.Helper()
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	js := observe(t, s.URL)
	config := bus.opts.streamConfig()
	limit(&config)
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return bus, js
}

// TestStoredByAnotherStream verifies that an acknowledgement of another stream doesn't count. Here,
// that stream has taken the subjects of the bus, and the bus doesn't know it yet.
func TestStoredByAnotherStream(t *testing.T) {
	bus, js := limited(t, func(c *jetstream.StreamConfig) { c.Subjects = []string{"elsewhere.>"} })
	config := bus.opts.streamConfig()
	config.Name = "OTHER"
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if position, err := publishNow(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0)); err == nil {
		t.Errorf("the bus has stored the event at %d", position)
	}
}

// TestFull verifies that a full stream drops no message. When the stream has room again, it stores
// the rejected message.
func TestFull(t *testing.T) {
	for name, limit := range map[string]func(*jetstream.StreamConfig){
		"messages": func(c *jetstream.StreamConfig) { c.MaxMsgs = 2 },
		"bytes":    func(c *jetstream.StreamConfig) { c.MaxBytes = 20_000 },
	} {
		t.Run(name, func(t *testing.T) {
			bus, js := limited(t, limit)
			var err error
			var last publishtest.Object
			for v := 1; v < 10 && err == nil; v++ {
				last = publishtest.Object{Name: fmt.Sprintf("web-%d", v), Version: v, Data: strings.Repeat("x", 5_000)}
				_, err = publishNow(t, bus, last.Message(t, 0))
			}
			if publish.ResultOf(err) != stream.ResultFull || errors.Is(err, publish.ErrTooLarge) {
				t.Fatalf("error is %v, with result %s", err, publish.ResultOf(err))
			}
			if !strings.Contains(err.Error(), "no room") || !strings.Contains(err.Error(), name) {
				t.Errorf("the error does not say what is full: %v", err)
			}
			if _, err := js.UpdateStream(t.Context(), bus.opts.streamConfig()); err != nil {
				t.Fatal(err)
			}
			publishOK(t, bus, last.Message(t, 0))
		})
	}
}

func TestTooLargeForTheStream(t *testing.T) {
	bus, _ := limited(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 4_000 })
	_, err := publishNow(t, bus, publishtest.Object{Name: "web", Version: 1, Data: strings.Repeat("x", 5_000)}.Message(t, 0))
	if !errors.Is(err, publish.ErrTooLarge) {
		t.Errorf("error is %v, want ErrTooLarge", err)
	}
	publishOK(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
}

// TestTruncatedInDone verifies that done may publish a smaller form of a message that is too large,
// while other messages wait for the only in-flight slot.
func TestTruncatedInDone(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}, MaxInFlight: 1})
	config := bus.opts.streamConfig()
	config.MaxMsgSize = 4_000
	if _, err := observe(t, s.URL).UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	const objects = 50
	results := make(chan error, 2*objects)
	var others sync.WaitGroup
	for i := range objects {
		large := publishtest.Object{Name: fmt.Sprintf("web-%d", i), Version: 1, Data: strings.Repeat("x", 5_000)}.Message(t, 0)
		small := publishtest.Object{Name: fmt.Sprintf("web-%d", i), Version: 1}.Message(t, 0)
		other := publishtest.Object{Name: fmt.Sprintf("other-%d", i), Version: 1}.Message(t, 0)
		others.Go(func() { bus.Publish(t.Context(), other, func(_ uint64, err error) { results <- err }) })
		bus.Publish(t.Context(), large, func(_ uint64, err error) {
			if !errors.Is(err, publish.ErrTooLarge) {
				t.Errorf("error is %v, want ErrTooLarge", err)
			}
			bus.Publish(t.Context(), small, func(_ uint64, err error) { results <- err })
		})
	}
	timeout := time.After(limit)
	for range 2 * objects {
		select {
		case err := <-results:
			if err != nil {
				t.Fatal(err)
			}
		case <-timeout:
			t.Fatalf("not all completed within %s", limit)
		}
	}
	others.Wait()
}

// TestTooManyHeaders verifies that headers that exceed their separate limit of 64 KiB make a message
// too large.
func TestTooManyHeaders(t *testing.T) {
	bus, _ := limited(t, func(*jetstream.StreamConfig) {})
	m := publishtest.Object{Name: "web", Version: 1}.Message(t, 0)
	m.Attributes = append(m.Attributes[:len(m.Attributes):len(m.Attributes)], m.Attributes[0])
	m.Attributes[len(m.Attributes)-1].Name = "extension"
	m.Attributes[len(m.Attributes)-1].Value = strings.Repeat("x", 70_000)
	if _, err := publishNow(t, bus, m); !errors.Is(err, publish.ErrTooLarge) {
		t.Errorf("error is %v, want ErrTooLarge", err)
	}
}

// TestPayloadLimit verifies that a message of exactly the server's limit is stored, and that one
// more byte is rejected.
func TestPayloadLimit(t *testing.T) {
	s := natstest.Start(t, func(o *server.Options) { o.MaxPayload = 8_000 })
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	message := func(name string, data int) int { // returns the payload size
		m := publishtest.Object{Name: name, Version: 1, Data: strings.Repeat("x", data)}.Message(t, 0)
		msg, err := binding.Encode(m, false, binding.NewHeader())
		if err != nil {
			t.Fatal(err)
		}
		return payloadSize(msg)
	}
	room := 8_000 - message("a", 0)
	publishOK(t, bus, publishtest.Object{Name: "a", Version: 1, Data: strings.Repeat("x", room)}.Message(t, 0))
	_, err := publishNow(t, bus, publishtest.Object{Name: "b", Version: 1, Data: strings.Repeat("x", room+1)}.Message(t, 0))
	if !errors.Is(err, publish.ErrTooLarge) || !strings.Contains(err.Error(), "8001") {
		t.Errorf("error is %v, want ErrTooLarge of 8001 bytes", err)
	}
}

// allow configures a server whose user relay may publish only to the given subjects.
func allow(subjects ...string) func(*server.Options) {
	return func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "admin"},
			{Username: "relay", Password: "relay", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: subjects}}},
		}
	}
}

// TestPermission verifies that a missing permission is logged once, and that no publish waits
// forever because of it.
func TestPermission(t *testing.T) {
	t.Run("to create the stream", func(t *testing.T) {
		s := natstest.Start(t, allow("kuberelay.>", "$JS.API.STREAM.INFO.>"))
		err := connectError(t, Options{
			Connection: Connection{URLs: []string{s.URL}, Cluster: "c", User: "relay", PasswordFile: file(t, "relay"), AckTimeout: time.Second},
		})
		if !errors.Is(err, ErrMisconfigured) || !strings.Contains(err.Error(), "$JS.API.STREAM.CREATE.KUBERELAY") || !strings.Contains(err.Error(), `stream "KUBERELAY" does not exist`) {
			t.Errorf("error is %v, want ErrMisconfigured that names the subject and the stream", err)
		}
	})
	t.Run("to publish", func(t *testing.T) {
		s := natstest.Start(t, allow("$JS.API.>"))
		var log strings.Builder
		bus := connect(t, Options{
			Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster, User: "relay", PasswordFile: file(t, "relay"), AckTimeout: time.Second, Logger: slog.New(slog.NewTextHandler(&locked{w: &log}, nil))},
		})
		waitDenied(t, bus)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				m := publishtest.Object{Name: fmt.Sprintf("web-%d", i), Version: 1}.Message(t, 0)
				_, err := publishNow(t, bus, m)
				for publish.ResultOf(err) == publish.ResultNotReady { // a check can time out on a busy machine
					waitReady(t, bus)
					_, err = publishNow(t, bus, m)
				}
				if err == nil || !strings.Contains(err.Error(), "Permissions Violation") {
					t.Errorf("error is %v, want one about the permission", err)
				}
			})
		}
		wg.Wait()
		bus.Close()
		if n := strings.Count(log.String(), "Permissions Violation"); n != 1 {
			t.Errorf("the log has the error %d times, want once: %s", n, log.String())
		}
	})
}

// waitDenied publishes until the error names the missing permission. Earlier errors lack the reason.
func waitDenied(t *testing.T, bus *Bus) {
	t.Helper()
	poll.Holds(t, "the bus reports the missing permission", func() bool {
		_, err := publishNow(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
		return err != nil && strings.Contains(err.Error(), "Permissions Violation")
	})
}

// TestPermissionIsGivenLater verifies that a permission error of an earlier connection is not
// reported as the reason for a failure on the next connection.
func TestPermissionIsGivenLater(t *testing.T) {
	s := natstest.Start(t, allow("$JS.API.>"))
	proxy := faultproxy.Start(t, s.Addr())
	bus := connect(t, Options{
		Connection: Connection{URLs: []string{proxy.Addr()}, Cluster: publishtest.Cluster, User: "relay", PasswordFile: file(t, "relay"), AckTimeout: time.Second},
	})
	waitDenied(t, bus)
	m := publishtest.Object{Name: "web", Version: 1}.Message(t, 0)
	s.Configure(allow("$JS.API.>", "kuberelay.>"))
	s.Restart()
	waitReconnected(t, bus)
	if err := publishFrozen(t, bus, proxy, m); publish.ResultOf(err) != publish.ResultTimeout || strings.Contains(err.Error(), "Permissions Violation") {
		t.Errorf("error is %v, want only a timeout", err)
	}
}

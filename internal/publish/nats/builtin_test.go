package nats

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/natsserver"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// builtIn starts a built-in server in this process.
func builtIn(t *testing.T) *natsserver.Server {
	t.Helper()
	s, err := natsserver.Start(t.Context(), natsserver.Options{ListenAddr: "127.0.0.1:0", StoreDir: t.TempDir(), Access: natsserver.Access{Anonymous: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	return s
}

func TestInProcess(t *testing.T) {
	s := builtIn(t)
	bus := connect(t, Options{Connection: Connection{InProcess: s, Cluster: publishtest.Cluster}})
	position := publishOK(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
	events := readEvents(t, s.ClientURL(), publishtest.Object{Name: "web"}.Key())
	if len(events) != 1 || events[0].Position != position {
		t.Errorf("the bus holds %v, want one event at %d", events, position)
	}
}

// TestReadersDoNotSeeAnswers verifies that a reader doesn't see the reply subjects of the bus. A
// reader that knows a reply subject could make the server send other messages there.
func TestReadersDoNotSeeAnswers(t *testing.T) {
	s := builtIn(t)
	nc, err := natsgo.Connect(s.ClientURL(), natsgo.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	all, err := nc.SubscribeSync("_INBOX.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	bus := connect(t, Options{Connection: Connection{InProcess: s, Cluster: publishtest.Cluster}})
	publishOK(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
	own := nc.NewInbox()
	if err := nc.PublishRequest("$JS.API.STREAM.INFO.KUBERELAY", own, nil); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := all.NextMsg(limit)
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject == own {
			return
		}
		t.Errorf("a reader sees %s: %s", m.Subject, m.Data)
	}
}

// TestBuiltInStreamIsChanged verifies that changed settings are applied to the stream of a built-in
// server, and that the stream keeps its messages. Nobody else can edit the stream of a built-in
// server.
func TestBuiltInStreamIsChanged(t *testing.T) {
	s := builtIn(t)
	o := Options{Connection: Connection{InProcess: s, Cluster: publishtest.Cluster}, History: 3}
	before := connect(t, o)
	position, first := publishOK(t, before, publishtest.Object{Name: "web", Version: 1}.Message(t, 0)), firstOf(t, before)
	before.Close()

	var log strings.Builder
	o.History, o.Logger = 5, slog.New(slog.NewTextHandler(&locked{w: &log}, nil))
	bus := connect(t, o)
	if err := bus.Ready(); err != nil {
		t.Fatal(err)
	}
	stream, err := observe(t, s.ClientURL()).Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().Config.MaxMsgsPerSubject; got != 5 {
		t.Errorf("the stream keeps %d messages of a subject, want 5", got)
	}
	if got := firstOf(t, bus); got != first {
		t.Errorf("the first sequence is %d, was %d: a start of the server would remove what is below", got, first)
	}
	if got := load(t, bus)[publishtest.Object{Name: "web"}.Key()]; got.Position != position {
		t.Errorf("the bus holds %+v, want the event at %d", got, position)
	}
	bus.Close()
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "max_msgs_per_subject is 3, should be 5") {
		t.Errorf("the log does not say what was changed: %s", log.String())
	}
}

// TestBuiltInStreamCannotBeChanged verifies that the error names the wrong setting and the fix for a
// built-in server.
func TestBuiltInStreamCannotBeChanged(t *testing.T) {
	s := builtIn(t)
	config := Options{}.WithDefaults().streamConfig()
	config.Storage = jetstream.MemoryStorage
	if _, err := observe(t, "", natsgo.InProcessServer(s)).CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	err := connectError(t, Options{Connection: Connection{InProcess: s, Cluster: publishtest.Cluster}})
	if !errors.Is(err, ErrMisconfigured) {
		t.Fatalf("error is %v, want ErrMisconfigured", err)
	}
	for _, want := range []string{"storage is Memory, should be File", "rejected the update", "KUBERELAY_DATA_DIR"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q: %v", want, err)
		}
	}
}

// TestInspectBuiltIn verifies that an inspection as a reader does not fill the log of a built-in server. An
// earlier version requested the permissions of the reader, which the server refused and logged as an error.
func TestInspectBuiltIn(t *testing.T) {
	var log strings.Builder
	s, err := natsserver.Start(t.Context(), natsserver.Options{
		ListenAddr: "127.0.0.1:0", StoreDir: t.TempDir(), Access: natsserver.Access{Anonymous: true}, Logger: slog.New(slog.NewTextHandler(&locked{w: &log}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Connection: Connection{InProcess: s, Cluster: publishtest.Cluster}}
	bus := connect(t, o)
	publishOK(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
	o.InProcess = nil
	i, err := Inspect(t.Context(), Connection{URLs: []string{s.ClientURL()}}, o.WithDefaults())
	if err != nil || i.Stream == nil || i.ClaimErr != nil || i.DeniedErr != nil || len(i.Denied) > 0 {
		t.Errorf("found %+v, %v", i, err)
	}
	bus.Close()
	if err := s.Shutdown(context.Background()); err != nil { // from here on, the log is complete
		t.Fatal(err)
	}
	if log.Len() > 0 {
		t.Errorf("the server warns about an inspection:\n%s", log.String())
	}
}

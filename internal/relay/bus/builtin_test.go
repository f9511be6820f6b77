package bus

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/config"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/sinks"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

// TestTLSSettingsOfSubscribers verifies that the forwarder's own connection to the built-in server
// ignores the settings with which subscribers verify the server.
func TestTLSSettingsOfSubscribers(t *testing.T) {
	ca := tlstest.NewCA(t)
	_, cert, key := ca.IssueFor("kuberelay.example.com")
	c := claimTest{t: t, name: "prod"}
	c.cfg.Event.Sink, c.cfg.Event.ContentMode = config.SinkNATS, "binary"
	c.cfg.Server = config.Server{
		Listen: net.JoinHostPort("127.0.0.1", strconv.Itoa(natstest.FreePort(t))), DataDir: t.TempDir(), CertFile: cert, KeyFile: key,
	}
	c.cfg.NATS.CAFile, c.cfg.NATS.ServerName = ca.File, "kuberelay.example.com"
	c.settled("uid-1", "")

	o, err := sinks.NATSReader(c.cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	b, err := natsreader.Connect(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Wait(ctx); err != nil {
		t.Errorf("a subscriber on this machine: %v", err)
	}
}

// TestTheLogHasTheAddress verifies that the log says at which port subscribers reach the built-in
// server, if KUBERELAY_NATS_LISTEN has port 0.
func TestTheLogHasTheAddress(t *testing.T) {
	var log bytes.Buffer
	cfg := config.Config{Server: config.Server{Listen: "127.0.0.1:0", DataDir: t.TempDir()}}
	server, err := StartServer(t.Context(), cfg, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(server.ClientURL(), "nats://")
	if err := server.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "address="+address) {
		t.Errorf("the server listens on %s, and the log is %s", address, log.String())
	}
}

package main

import (
	"context"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/natsserver"
)

// runNATSServer is the bus, in a process of its own so that what it costs is not counted
// as the forwarder's. Its argument is the folder of its files.
func runNATSServer(ctx context.Context, args []string) error {
	server, err := natsserver.Start(ctx, natsserver.Options{ListenAddr: "127.0.0.1:0", StoreDir: args[0]})
	if err != nil {
		return err
	}
	m := reach("ready")
	m.URL = server.ClientURL()
	if err := tell(m); err != nil {
		return err
	}
	if err := answerUntilEnd(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return server.Shutdown(bounded)
}

// natsBus is a NATS server with nothing in it.
type natsBus struct {
	*played
	dir  string
	url  string
	conn *nats.Conn
	js   jetstream.JetStream
}

func (s *stage) startNATS(ctx context.Context) (*natsBus, error) {
	dir, err := os.MkdirTemp(s.dir, "nats-")
	if err != nil {
		return nil, err
	}
	role, err := s.play(ctx, "nats", dir)
	if err != nil {
		return nil, err
	}
	b := &natsBus{played: role, dir: dir}
	m, err := b.await("ready")
	if err != nil {
		return nil, err
	}
	b.url = m.URL
	if b.conn, err = nats.Connect(b.url); err != nil {
		return nil, err
	}
	b.js, err = jetstream.New(b.conn)
	return b, err
}

func (b *natsBus) close() error {
	b.conn.Close()
	if err := b.stop(); err != nil {
		return err
	}
	return os.RemoveAll(b.dir)
}

const stream = "KUBERELAY"

// state is of the forwarder's stream; nothing while there is none.
func (b *natsBus) state(ctx context.Context) (jetstream.StreamState, error) {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return jetstream.StreamState{}, err
	}
	return s.CachedInfo().State, nil
}

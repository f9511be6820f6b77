package stream

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/credential"
)

// rotation is the state of the credential files.
type rotation struct {
	files *credential.Watcher

	mu    sync.Mutex // held while a change is processed
	stale bool       // the connection may be older than the files
}

// watchFiles checks the files periodically. It runs until Close.
func (c *Conn) watchFiles(ctx context.Context) {
	ticker := time.NewTicker(credential.CheckEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.CheckFiles(ctx)
		}
	}
}

// CheckFiles reconnects if a file changed, because a server checks credentials only at
// connect, and would accept the old ones for the lifetime of the connection. If the server
// rejects the new ones, the connection stays: the server may learn of them later, or the
// other files may not be written yet.
func (c *Conn) CheckFiles(ctx context.Context) {
	r := &c.rotation
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.files.Changed() {
		r.stale = true
	}
	if !r.stale || !c.NC.IsConnected() { // a connect in progress may have read the old files
		return
	}
	if err := c.tryCredentials(); errors.Is(err, ErrMisconfigured) {
		c.log.Warn("new credentials do not work, keeping the connection", "err", err)
		return
	}
	r.stale = false
	c.log.Info("credentials changed, reconnecting")
	c.reconnect(ctx)
}

// tryCredentials connects with the current files. The error is [ErrMisconfigured] if the
// server rejects them, and another one if that is unknown.
func (c *Conn) tryCredentials() error {
	opts, err := c.Opts.credentials()
	if err != nil {
		return err
	}
	opts = append(opts, natsgo.Name("kuberelay "+c.Opts.Cluster+" (trying)"), natsgo.NoReconnect())
	if c.Opts.InProcess != nil {
		opts = append(opts, natsgo.InProcessServer(c.Opts.InProcess))
	}
	nc, err := natsgo.Connect(strings.Join(c.Opts.URLs, ","), opts...)
	if err == nil {
		nc.Close()
		return nil
	}
	if isPermanent(err) {
		return Misconfigured("connect to %s: %w", c.Servers(), err)
	}
	return err
}

// reconnectTimeout bounds each phase of [Conn.reconnect].
const reconnectTimeout = 10 * time.Second

// reconnect waits for the messages in flight while Publish blocks, and then replaces the
// connection. Messages without a response by then fail with an unknown outcome, as after
// any lost connection, which compare-and-set resolves.
func (c *Conn) reconnect(ctx context.Context) {
	draining, cancel := context.WithTimeout(ctx, reconnectTimeout)
	defer cancel()
	if c.hooks.Pause != nil {
		defer c.hooks.Pause(draining)()
	}
	before, _, _ := c.state.get()
	if err := c.NC.ForceReconnect(); err != nil {
		c.log.Warn("reconnecting to the bus failed", "err", err) // it is closed
		return
	}
	connecting, cancel := context.WithTimeout(ctx, reconnectTimeout)
	defer cancel()
	for {
		connection, changed, err := c.state.get()
		if connection != before && err == nil {
			return
		}
		select {
		case <-changed:
		case <-connecting.Done():
			return
		}
	}
}

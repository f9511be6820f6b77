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
	stale bool       // the connection might be older than the files
}

// CheckFiles reconnects if a file changed. Without the reconnect, the server would accept the old
// credentials for the lifetime of the connection, because it checks credentials only at connect. If
// the server rejects the new credentials, the connection stays: the server might learn about them
// later, or the other files might not be written yet.
func (l *link) CheckFiles(ctx context.Context) {
	r := &l.rotation
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.files.Changed() {
		r.stale = true
	}
	if !r.stale || !l.NC.IsConnected() { // a connect in progress might have read the old files
		return
	}
	if err := l.tryCredentials(); errors.Is(err, ErrMisconfigured) {
		l.log.Warn("cannot connect with the new credentials, keeping the current connection", "err", err)
		return
	}
	r.stale = false
	l.log.Info("credentials changed, reconnecting")
	l.reconnect(ctx)
}

// tryCredentials connects with the current files. The error wraps [ErrMisconfigured] if the server
// rejects the credentials. Any other error means that it is unknown whether the server accepts
// them.
func (l *link) tryCredentials() error {
	opts, err := l.opts.credentials()
	if err != nil {
		return err
	}
	opts = append(opts, natsgo.Name(l.opts.name()+" (trying)"), natsgo.NoReconnect())
	if l.opts.InProcess != nil {
		opts = append(opts, natsgo.InProcessServer(l.opts.InProcess))
	}
	nc, err := natsgo.Connect(strings.Join(l.opts.URLs, ","), opts...)
	if err == nil {
		nc.Close()
		return nil
	}
	if isPermanent(err) {
		return Misconfigured("connect to %s: %w", l.Servers(), err)
	}
	return err
}

// reconnectTimeout bounds each phase of [link.reconnect].
const reconnectTimeout = 10 * time.Second

// reconnect replaces the connection. It first makes Publish block, and waits for the in-flight
// messages of all Conns. Messages without a response within reconnectTimeout fail with an unknown
// outcome, as after any lost connection, and compare-and-set resolves them. Each Conn continues
// when its stream is ready.
func (l *link) reconnect(ctx context.Context) {
	draining, cancel := context.WithTimeout(ctx, reconnectTimeout)
	defer cancel()
	connecting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var pausing, resuming sync.WaitGroup
	replaced := make(chan struct{})
	users := l.all()
	pausing.Add(len(users))
	for _, c := range users {
		resuming.Go(func() {
			resume := c.pause(draining)
			defer resume()
			before, _, _ := c.State()
			pausing.Done()
			<-replaced
			waiting, cancel := context.WithTimeout(connecting, reconnectTimeout)
			defer cancel()
			c.until(waiting, func(now int, err error) bool { return now != before && err == nil })
		})
	}
	pausing.Wait()
	if err := l.NC.ForceReconnect(); err != nil {
		l.log.Warn("reconnecting to the bus failed", "err", err) // the connection is closed
		giveUp()
	}
	close(replaced)
	resuming.Wait()
}

func (c *Conn) pause(ctx context.Context) (resume func()) {
	if c.hooks.Pause == nil {
		return func() {}
	}
	return c.hooks.Pause(ctx)
}

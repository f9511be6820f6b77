package nats

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/credential"
)

// rotation is what is known of the files of credentials.
type rotation struct {
	files *credential.Watcher

	mu    sync.Mutex // held for as long as a change is dealt with
	stale bool       // the connection may be older than what is in the files
}

// watchFiles looks at the files from time to time. It runs until Close.
func (b *Bus) watchFiles(ctx context.Context) {
	ticker := time.NewTicker(credential.CheckEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			b.checkFiles(ctx)
		}
	}
}

// checkFiles makes the connection anew if a file has changed, since a server asks for
// credentials only once, and would let the former ones in for as long as the connection
// lasts. A server that refuses what is in the files now may learn of it later, or the
// rest of the files may be on their way: until then the connection stays.
func (b *Bus) checkFiles(ctx context.Context) {
	r := &b.rotation
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.files.Changed() {
		r.stale = true
	}
	if !r.stale || !b.nc.IsConnected() { // a connection that is being made may have read them before
		return
	}
	if err := b.probe(); errors.Is(err, ErrMisconfigured) {
		b.log.Warn("the new credentials cannot be used, staying with the last ones", "err", err)
		return
	}
	r.stale = false
	b.log.Info("credentials changed, the connection is made anew")
	b.reconnect(ctx)
}

// probe makes a connection with what is in the files, to see whether it is taken.
// What it gives is [ErrMisconfigured] if it is not, and any error if that is not known.
func (b *Bus) probe() error {
	opts, err := b.opts.credentials()
	if err != nil {
		return err
	}
	opts = append(opts, natsgo.Name("kuberelay "+b.opts.Cluster+" (trying)"), natsgo.NoReconnect())
	if b.opts.InProcess != nil {
		opts = append(opts, natsgo.InProcessServer(b.opts.InProcess))
	}
	nc, err := natsgo.Connect(strings.Join(b.opts.URLs, ","), opts...)
	if err == nil {
		nc.Close()
		return nil
	}
	if isPermanent(err) {
		return misconfigured("connect to %s: %w", b.servers(), err)
	}
	return err
}

// reconnectTimeout bounds each half of [Bus.reconnect].
const reconnectTimeout = 10 * time.Second

// reconnect waits for what is in flight, while Publish waits for room, and replaces the
// connection. What is not answered in time fails with an unknown outcome, as whenever a
// connection is lost, and is found out by compare-and-set.
func (b *Bus) reconnect(ctx context.Context) {
	draining, cancel := context.WithTimeout(ctx, reconnectTimeout)
	defer cancel()
	held := 0
	defer func() {
		for range held {
			<-b.slots
		}
	}()
	for held < cap(b.slots) && draining.Err() == nil {
		select {
		case b.slots <- struct{}{}:
			held++
		case <-draining.Done():
		}
	}
	before, _, _ := b.state.get()
	if err := b.nc.ForceReconnect(); err != nil {
		b.log.Warn("the connection cannot be made anew", "err", err) // it is closed
		return
	}
	connecting, cancel := context.WithTimeout(ctx, reconnectTimeout)
	defer cancel()
	for {
		connection, changed, err := b.state.get()
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

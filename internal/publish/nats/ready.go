package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// state says whether the stream can be published to, and why not.
type state struct {
	mu         sync.Mutex
	err        error         // nil if ready
	noted      error         // the last error that came without a call to blame
	denied     error         // the last refused permission of this connection
	connection int           // counts disconnections
	changed    chan struct{} // closed at each change
}

// set records what a look at the stream brought, unless the connection was lost
// since it began.
func (s *state) set(connection int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if connection == s.connection {
		s.change(err)
	}
}

func (s *state) disconnected(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connection++
	s.noted, s.denied = err, nil
	s.change(errors.New("not connected"))
}

func (s *state) change(err error) {
	s.err = err
	if s.changed != nil {
		close(s.changed)
	}
	s.changed = make(chan struct{})
}

// note keeps an error for Ready to tell. New is false for a further refused
// permission of the same connection.
func (s *state) note(err error) (isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noted = err
	if errors.Is(err, natsgo.ErrPermissionViolation) {
		isNew = s.denied == nil
		s.denied = err
		return isNew
	}
	return true
}

func (s *state) get() (connection int, changed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connection, s.changed, s.err
}

// Ready is [publish.Publisher]'s: nil while the server is connected and the
// stream is as it should be.
func (b *Bus) Ready() error {
	if b.isClosing() {
		return errClosed
	}
	if b.gone.Load() {
		return publish.ErrGone
	}
	_, _, err := b.state.get()
	return err
}

// Created is how often this bus has created its stream. If it grows after Connect,
// somebody removed the stream with all that was in it.
func (b *Bus) Created() uint64 { return b.created.Load() }

// Wait blocks until the bus is ready, ctx ends, or it turns out that waiting will
// not help ([ErrMisconfigured]).
func (b *Bus) Wait(ctx context.Context) error {
	for {
		_, changed, err := b.state.get()
		if err == nil || errors.Is(err, ErrMisconfigured) {
			return err
		}
		select {
		case <-changed:
		case <-b.closing:
			return errClosed
		case <-ctx.Done():
			return fmt.Errorf("wait for the bus: %w (%w)", ctx.Err(), err)
		}
	}
}

const (
	lookEvery = time.Second      // while not ready
	warnEvery = 30 * time.Second // while not ready
)

// supervise looks after the stream when something calls for it, and at intervals
// while the bus is not ready. It runs until Close.
func (b *Bus) supervise(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	warned := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.kick:
		case <-ticker.C:
			if b.Ready() == nil {
				continue
			}
		}
		before := b.Ready()
		err := b.look(ctx)
		switch {
		case err == nil && before != nil:
			b.log.Info("the bus is ready", "stream", b.opts.Stream)
		case err != nil && (before == nil || time.Since(warned) > warnEvery):
			warned = time.Now()
			b.log.Warn("the bus is not ready", "servers", b.servers(), "err", err)
		}
	}
}

// sweepOften fails what has been in flight for too long. It runs until Close.
func (b *Bus) sweepOften(ctx context.Context) {
	ticker := time.NewTicker(max(b.opts.AckTimeout/8, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			b.sweep(now)
		}
	}
}

func (b *Bus) kickSupervisor() {
	select {
	case b.kick <- struct{}{}:
	default: // it will look anyway
	}
}

// look finds out whether the stream is there and right, and creates it if it is
// not there.
func (b *Bus) look(ctx context.Context) error {
	connection, _, _ := b.state.get()
	var err error
	if b.nc.IsConnected() {
		ctx, cancel := context.WithTimeout(ctx, b.apiTimeout())
		var watching sync.WaitGroup
		watching.Go(func() { b.untilLost(ctx, connection); cancel() }) // its answer would never come
		err = b.ensureStream(ctx)
		cancel()
		watching.Wait()
	} else {
		err = b.whyNotConnected()
	}
	b.state.set(connection, err)
	return err
}

// whyNotConnected makes one error of what the client tells in different places.
func (b *Bus) whyNotConnected() error {
	b.state.mu.Lock()
	err := b.state.noted
	b.state.mu.Unlock()
	if last := b.nc.LastError(); last != nil {
		err = last
	}
	if err == nil {
		err = natsgo.ErrNoServers
	}
	if isPermanent(err) {
		return misconfigured("connect to %s: %w", b.servers(), err)
	}
	return fmt.Errorf("not connected to %s: %w", b.servers(), err)
}

func (b *Bus) permissionError() error {
	b.state.mu.Lock()
	defer b.state.mu.Unlock()
	return b.state.denied
}

// Flush waits until every message handed over so far is completed, or ctx ends.
func (b *Bus) Flush(ctx context.Context) error {
	if err := b.flights.pending.Wait(ctx); err != nil {
		return fmt.Errorf("wait for acknowledgements: %w", err)
	}
	return nil
}

// closeTimeout bounds how long Close waits for completions that are running.
const closeTimeout = 5 * time.Second

// Close is [publish.Publisher]'s. When it returns, every completion has been
// called and has returned, unless one of them took several seconds.
func (b *Bus) Close() error {
	var err error
	b.close.Do(func() {
		b.stop()
		for _, f := range b.flights.close() {
			b.finish(f, 0, errClosed)
		}
		b.nc.Close()
		b.workers.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err = b.Flush(ctx)
		b.metrics.connected.Set(0)
	})
	return err
}

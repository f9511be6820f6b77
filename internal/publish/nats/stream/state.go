package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// state is the readiness of the stream.
type state struct {
	current atomic.Pointer[phase] // never nil; changed while mu is held

	mu      sync.Mutex
	noted   error     // the last error that a callback of the client reported
	denied  error     // the last permission error of this connection
	created time.Time // creation time of the stream, which identifies it
	losses  uint64    // see [Conn.PossibleLosses]
	led     leadership
}

// phase is the readiness between two changes.
type phase struct {
	connection int           // counts disconnections
	err        error         // why the stream is not ready; nil if it is
	over       chan struct{} // closed at the next change
}

// set records the result of a check, unless the connection was lost since the check
// started.
func (s *state) set(connection int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if connection == s.current.Load().connection {
		s.change(connection, err)
	}
}

func (s *state) disconnected(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losses++
	s.noted, s.denied = err, nil
	s.change(s.current.Load().connection+1, errors.New("not connected"))
}

func (s *state) change(connection int, err error) {
	before := s.current.Swap(&phase{connection, err, make(chan struct{})})
	close(before.over)
}

// note records an error for WhyNotConnected and PermissionError. isNew is false for a repeated
// permission error on the same connection.
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

// State returns the number of the connection, a channel that is closed when the state changes, and
// the reason why the stream is not ready, or nil if it is ready.
func (s *state) State() (connection int, changed <-chan struct{}, err error) {
	is := s.current.Load()
	return is.connection, is.over, is.err
}

// Found records the stream that a check found, and reports whether it replaces another stream.
func (s *state) Found(is *jetstream.StreamInfo) (another bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isFirst, led := s.created.IsZero(), leadershipOf(is.Cluster)
	another = !isFirst && !is.Created.Equal(s.created)
	if isFirst || another || led != s.led {
		s.losses++
	}
	s.created, s.led = is.Created, led
	return another
}

// leadership is a period in which one server of a cluster is the stream leader.
type leadership struct {
	server string
	since  time.Time // zero before nats-server 2.12
}

// leadershipOf returns the current leadership. It returns the zero value for a single server,
// because a restart of that server ends the connection anyway.
func leadershipOf(c *jetstream.ClusterInfo) (is leadership) {
	if c == nil || c.Name == "" {
		return is
	}
	if is.server = c.Leader; c.LeaderSince != nil {
		is.since = c.LeaderSince.UTC()
	}
	return is
}

// Ready returns nil while the server is connected and responds, and the last check of the stream
// succeeded. If the server stops responding, Ready returns an error within 10 s.
func (c *Conn) Ready() error {
	if c.IsClosing() {
		return ErrClosed
	}
	if c.gone.Load() {
		return publish.ErrGone
	}
	_, _, err := c.State()
	return err
}

// PossibleLosses returns the sum of three counts: the different streams that this Conn found or
// created, the connections that it lost, and the leader elections that it noticed. If the sum grows
// after Connect, the stream might have lost messages. For example, somebody deleted the stream and a
// forwarder created it again, the server crashed, or the new leader lacks messages that the
// previous one acknowledged.
func (s *state) PossibleLosses() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.losses
}

// Stream returns the creation time of the stream, which identifies it. It returns "" until a stream
// is found.
func (s *state) Stream() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.created.IsZero() {
		return ""
	}
	return s.created.UTC().Format(time.RFC3339Nano)
}

// Wait blocks until the stream is ready or ctx ends. It returns early with an error that a retry
// cannot fix ([ErrMisconfigured]).
func (c *Conn) Wait(ctx context.Context) error {
	for {
		_, changed, err := c.State()
		if err == nil || errors.Is(err, ErrMisconfigured) {
			return err
		}
		select {
		case <-changed:
		case <-c.Closing():
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("wait for the bus: %w (%w)", ctx.Err(), err)
		}
	}
}

const (
	retryEvery   = time.Second      // check interval while not ready
	checkEvery   = 3 * time.Second  // check interval while ready
	checkTimeout = 5 * time.Second  // while ready
	warnEvery    = 30 * time.Second // log interval while not ready
)

// supervise checks the stream on demand and at intervals. Only a check detects a server that hangs,
// or a stream that is deleted while nothing is published. supervise runs until ctx ends.
func (c *Conn) supervise(ctx context.Context) {
	ticker := time.NewTicker(retryEvery)
	defer ticker.Stop()
	warned, looked := time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.kick:
		case <-ticker.C:
			if c.Ready() == nil && time.Since(looked) < checkEvery {
				continue
			}
		}
		before := c.Ready()
		err := c.Check(ctx)
		looked = time.Now()
		switch {
		case err == nil && before != nil:
			c.log.Info("the bus is ready", "stream", c.Opts.Stream)
		case err != nil && (before == nil || time.Since(warned) > warnEvery):
			warned = time.Now()
			c.log.Warn("the bus is not ready", "servers", c.Servers(), "err", err)
		}
	}
}

// Kick makes the supervisor check the stream soon.
func (c *Conn) Kick() {
	select {
	case c.kick <- struct{}{}:
	default: // a check is already requested
	}
}

// Check calls [Hooks.Check] and records the result for Ready. It ignores a check that times out
// while publishes receive responses, because the server is only busy.
func (c *Conn) Check(ctx context.Context) error {
	connection, _, before := c.State()
	timeout, responses := c.RequestTimeout(), c.responses()
	if before == nil {
		timeout = min(timeout, checkTimeout)
	}
	var err error
	if c.NC.IsConnected() {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		var watching sync.WaitGroup
		watching.Go(func() { c.UntilLost(ctx, connection); cancel() }) // without the connection, the response cannot arrive
		err = c.hooks.Check(ctx, c)
		cancel()
		watching.Wait()
		if before == nil && errors.Is(err, context.DeadlineExceeded) && c.responses() != responses {
			return nil
		}
	} else {
		err = c.WhyNotConnected()
	}
	c.set(connection, err)
	return err
}

// WhyNotConnected returns why there is no connection: the last error of the client, or else the last
// error that a callback of the client reported.
func (c *Conn) WhyNotConnected() error {
	c.state.mu.Lock()
	err := c.noted
	c.state.mu.Unlock()
	if last := c.NC.LastError(); last != nil {
		err = last
	}
	if err == nil {
		err = natsgo.ErrNoServers
	}
	if isPermanent(err) {
		return Misconfigured("connect to %s: %w", c.Servers(), err)
	}
	return fmt.Errorf("not connected to %s: %w", c.Servers(), err)
}

// PermissionError returns the last permission error of the connection.
func (s *state) PermissionError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.denied
}

func (c *Conn) responses() uint64 {
	if c.hooks.Responses == nil {
		return 0
	}
	return c.hooks.Responses()
}

// UntilLost blocks until the connection with the given number is lost, the Conn closes, or ctx ends.
func (c *Conn) UntilLost(ctx context.Context, connection int) {
	c.until(ctx, func(now int, _ error) bool { return now != connection })
}

// until blocks until done returns true, the Conn closes, or ctx ends. done receives the number of the
// connection, and the reason why the stream is not ready, or nil.
func (c *Conn) until(ctx context.Context, done func(connection int, err error) bool) {
	for {
		connection, changed, err := c.State()
		if done(connection, err) {
			return
		}
		select {
		case <-changed:
		case <-c.Closing():
			return
		case <-ctx.Done():
			return
		}
	}
}

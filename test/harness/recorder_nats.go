package harness

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// NATSRecorder reads every message of a stream, one by one in the order of the
// stream. It asks for each, so that no consumer can be lost.
type NATSRecorder struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	stream string
	cancel context.CancelFunc
	done   chan struct{}

	handle jetstream.Stream // nil before the stream was found; only run touches it

	mu      sync.Mutex
	all     []Received
	next    uint64 // the sequence to ask for; only run changes it
	missed  bool   // a message was gone before it could be read
	foreign error  // a message that is no CloudEvent
}

// RecordNATS begins to read a stream, which need not exist yet. Close ends it. The
// credentials are those that the server asks for.
func RecordNATS(address, stream string, credentials ...nats.Option) (*NATSRecorder, error) {
	nc, err := nats.Connect(address, append(credentials, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.IgnoreAuthErrorAbort())...)
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", stream, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", stream, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &NATSRecorder{nc: nc, js: js, stream: stream, cancel: cancel, done: make(chan struct{}), next: 1}
	go r.run(ctx)
	return r, nil
}

// Close is [Recorder]'s.
func (r *NATSRecorder) Close() {
	r.cancel()
	<-r.done
	r.nc.Close()
}

// JetStream is the connection, for a test that wants to do more.
func (r *NATSRecorder) JetStream() jetstream.JetStream { return r.js }

func (r *NATSRecorder) run(ctx context.Context) {
	defer close(r.done)
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if r.step(ctx) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// requestTimeout bounds each request; the server may be frozen.
const requestTimeout = time.Second

// step reads what there is, and tells whether it was anything.
func (r *NATSRecorder) step(ctx context.Context) (read bool) {
	if r.handle == nil {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		var err error
		if r.handle, err = r.js.Stream(ctx, r.stream); err != nil {
			r.handle = nil
			return false
		}
	}
	for r.one(ctx) {
		read = true
	}
	return read
}

func newReceived(m *jetstream.RawStreamMsg) (Received, error) {
	r := Received{Subject: m.Subject, Place: Place{Sequence: m.Sequence}, Body: m.Data}
	var headers []header
	for name, values := range m.Header {
		for _, value := range values {
			headers = append(headers, header{name, value})
		}
	}
	err := r.read(headers, "ce-", url.PathUnescape)
	return r, err
}

func (r *NATSRecorder) one(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := r.handle.GetMsg(ctx, r.next, jetstream.WithGetMsgSubject(">"))
	if err != nil {
		return false
	}
	received, err := newReceived(m)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missed = r.missed || m.Sequence != r.next
	r.next = m.Sequence + 1
	r.all = append(r.all, received)
	if r.foreign == nil {
		r.foreign = err
	}
	return true
}

// CatchUp is [Recorder]'s.
func (r *NATSRecorder) CatchUp(ctx context.Context, limit time.Duration) error {
	return Eventually(ctx, limit, "everything on the stream has been read", func(ctx context.Context) error {
		last, err := r.Stored(ctx)
		if err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.next <= last {
			return fmt.Errorf("at %d of %d", r.next-1, last)
		}
		return nil
	})
}

// All is [Recorder]'s.
func (r *NATSRecorder) All() (all []Received, missed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.foreign != nil {
		return nil, false, r.foreign
	}
	return append([]Received(nil), r.all...), r.missed, nil
}

// Stored is [Recorder]'s: the position of the last message that the stream holds.
func (r *NATSRecorder) Stored(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stream, err := r.js.Stream(ctx, r.stream)
	if err != nil {
		return 0, err
	}
	m, err := stream.GetLastMsgForSubject(ctx, ">")
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return m.Sequence, nil
}

package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Received is one message of the stream as a subscriber sees it, with nothing of
// the forwarder's code between it and the test.
type Received struct {
	Subject  string
	Sequence uint64 // its position in the stream
	Headers  nats.Header
	Body     []byte

	Attributes map[string]string // of the CloudEvent, percent-decoded
	Data       []byte            // of the CloudEvent
}

// Kind is the last word of the event's type.
func (r *Received) Kind() string {
	t := r.Attributes["type"]
	return t[strings.LastIndexByte(t, '.')+1:]
}

func newReceived(subject string, sequence uint64, headers nats.Header, body []byte) (Received, error) {
	r := Received{Subject: subject, Sequence: sequence, Headers: headers, Body: body, Attributes: map[string]string{}}
	if content := headers["content-type"]; len(content) > 0 && strings.HasPrefix(content[0], "application/cloudevents") {
		err := r.readStructured()
		return r, err
	}
	for name, values := range headers {
		attribute, ok := strings.CutPrefix(name, "ce-")
		if !ok {
			continue
		}
		value, err := url.PathUnescape(values[0])
		if err != nil || len(values) != 1 {
			return r, fmt.Errorf("header %s of %s is %q", name, subject, values)
		}
		r.Attributes[attribute] = value
	}
	r.Data = body
	return r, nil
}

func (r *Received) readStructured() error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(r.Body, &members); err != nil {
		return fmt.Errorf("the event on %s: %w", r.Subject, err)
	}
	for name, value := range members {
		var text string
		switch {
		case name == "data":
			r.Data = value
		case json.Unmarshal(value, &text) == nil:
			r.Attributes[name] = text
		default:
			r.Attributes[name] = string(value)
		}
	}
	return nil
}

// Recorder reads every message of a stream, one by one in the order of the stream,
// through restarts of the server. It asks for each, so that no consumer can be
// lost.
type Recorder struct {
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

// Record begins to read a stream, which need not exist yet. Close ends it.
func Record(url, stream string) (*Recorder, error) {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", stream, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", stream, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Recorder{nc: nc, js: js, stream: stream, cancel: cancel, done: make(chan struct{}), next: 1}
	go r.run(ctx)
	return r, nil
}

// Close ends the reading.
func (r *Recorder) Close() {
	r.cancel()
	<-r.done
	r.nc.Close()
}

// JetStream is the connection, for a test that wants to do more.
func (r *Recorder) JetStream() jetstream.JetStream { return r.js }

func (r *Recorder) run(ctx context.Context) {
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
func (r *Recorder) step(ctx context.Context) (read bool) {
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

func (r *Recorder) one(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := r.handle.GetMsg(ctx, r.next, jetstream.WithGetMsgSubject(">"))
	if err != nil {
		return false
	}
	received, err := newReceived(m.Subject, m.Sequence, m.Header, m.Data)
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

// CatchUp waits until everything has been read that is on the stream now.
func (r *Recorder) CatchUp(ctx context.Context, limit time.Duration) error {
	return Eventually(ctx, limit, "everything on the stream has been read", func(ctx context.Context) error {
		last, err := r.Last(ctx)
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

// All is what has been read so far, in order. Missed tells whether a message was
// removed before it could be read: then what looks like neighbours may be none.
func (r *Recorder) All() (all []Received, missed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.foreign != nil {
		return nil, false, r.foreign
	}
	return append([]Received(nil), r.all...), r.missed, nil
}

// Last is the position of the last message that the stream holds, 0 for none.
func (r *Recorder) Last(ctx context.Context) (uint64, error) {
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

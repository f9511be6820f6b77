package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// NATSRecorder reads every message of a stream, one by one in the order of the stream. It requests
// each message directly, because a consumer could be lost.
type NATSRecorder struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	stream string
	cancel context.CancelFunc
	done   chan struct{}

	handle  jetstream.Stream // nil until the stream is found; only run uses it
	created time.Time        // the stream's creation time; only run uses it

	mu      sync.Mutex
	all     []Received
	life    int    // counts the lives of the stream, 0 before the first
	next    uint64 // the next sequence to request
	missed  bool   // a message was removed before it was read
	foreign error  // the error of the first message that isn't a CloudEvent
	lenient bool   // accept messages that aren't CloudEvents
}

// RecordNATS starts reading a stream, which may not exist yet. Close stops the recorder. The
// credentials are only for a server that requires authentication.
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
	r := &NATSRecorder{nc: nc, js: js, stream: stream, cancel: cancel, done: make(chan struct{})}
	go r.run(ctx)
	return r, nil
}

// TolerateInvalid implements [Recorder].
func (r *NATSRecorder) TolerateInvalid() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lenient = true
}

// Close implements [Recorder].
func (r *NATSRecorder) Close() {
	r.cancel()
	<-r.done
	r.nc.Close()
}

// JetStream returns the JetStream API on the recorder's connection.
func (r *NATSRecorder) JetStream() jetstream.JetStream { return r.js }

func (r *NATSRecorder) run(ctx context.Context) {
	defer close(r.done)
	ticker := time.NewTicker(interval)
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

// requestTimeout limits each request, because the server may be frozen.
const requestTimeout = time.Second

// step reads the available messages and reports whether it has read any.
func (r *NATSRecorder) step(ctx context.Context) (read bool) {
	if !r.find(ctx) {
		return false
	}
	for r.one(ctx) {
		read = true
	}
	return read
}

// find finds the stream. The recorder reads a recreated stream from its first sequence, which isn't
// always 1.
func (r *NATSRecorder) find(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if r.handle == nil {
		handle, err := r.js.Stream(ctx, r.stream)
		if err != nil {
			return false
		}
		r.handle = handle
	}
	info, err := r.handle.Info(ctx)
	if err != nil {
		return false
	}
	if info.Created.Equal(r.created) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.created = info.Created
	r.life++
	r.next = max(1, info.Config.FirstSeq)
	return true
}

// Rewind tells the recorder that the server lost the end of the stream. The argument next is the
// sequence of the next message. No message may have been written to the stream since the loss.
// Messages that the recorder reads from now on have the returned life.
func (r *NATSRecorder) Rewind(next uint64) (life int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.life++
	r.next = next
	return r.life
}

func newReceived(m *jetstream.RawStreamMsg, life int) (Received, error) {
	r := Received{Subject: m.Subject, Place: Place{Life: life, Sequence: m.Sequence}, Body: m.Data}
	var headers []header
	for name, values := range m.Header {
		for _, value := range values {
			headers = append(headers, header{name, value})
		}
	}
	err := r.read(headers, "ce-", url.PathUnescape)
	return r, err
}

// get returns the first message at or after a sequence. If the headers can't be parsed, get returns
// the message without headers, and the parse error as headers. The client's own GetMsg would return
// an error that doesn't identify the message.
func (r *NATSRecorder) get(ctx context.Context, from uint64) (m *jetstream.RawStreamMsg, headers, err error) {
	answer, err := r.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+r.stream, fmt.Appendf(nil, `{"seq":%d,"next_by_subj":">"}`, from))
	if err != nil {
		return nil, nil, err
	}
	var is struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Headers  []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer.Data, &is); err != nil {
		return nil, nil, err
	}
	if is.Error != nil && is.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound {
		return nil, nil, jetstream.ErrMsgNotFound
	} else if is.Error != nil {
		return nil, nil, is.Error
	}
	of := is.Message
	m = &jetstream.RawStreamMsg{Subject: of.Subject, Sequence: of.Sequence, Data: of.Data, Time: of.Time}
	if len(of.Headers) > 0 {
		m.Header, headers = nats.DecodeHeadersMsg(of.Headers)
	}
	return m, headers, nil
}

func (r *NATSRecorder) one(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r.mu.Lock()
	life, next := r.life, r.next
	r.mu.Unlock()
	m, headersErr, err := r.get(ctx, next)
	if err != nil {
		return false
	}
	if m.Sequence != next { // the message may be from a recreated stream
		if info, err := r.handle.Info(ctx); err != nil || !info.Created.Equal(r.created) {
			return false
		}
	}
	received, err := newReceived(m, life)
	err = errors.Join(headersErr, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life != life || r.next != next {
		return false
	}
	r.missed = r.missed || m.Sequence != r.next
	r.next = m.Sequence + 1
	received.Invalid = err
	r.all = append(r.all, received)
	if r.foreign == nil && !r.lenient {
		r.foreign = err
	}
	return true
}

// CatchUp implements [Recorder].
func (r *NATSRecorder) CatchUp(ctx context.Context, limit time.Duration) error {
	return poll.Until(ctx, limit, "everything on the stream has been read", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		r.mu.Lock()
		next := r.next
		r.mu.Unlock()
		m, _, err := r.get(ctx, max(1, next))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("the next sequence to read is %d, and the stream has %d", next, m.Sequence)
	})
}

// All implements [Recorder].
func (r *NATSRecorder) All() (all []Received, missed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.foreign != nil {
		return nil, false, r.foreign
	}
	return append([]Received(nil), r.all...), r.missed, nil
}

// Stored implements [Recorder]. It returns the sequence of the last stored message, even if that
// message was purged, or 0 if the stream is empty.
func (r *NATSRecorder) Stored(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stream, err := r.js.Stream(ctx, r.stream)
	if err != nil {
		return 0, err
	}
	state := stream.CachedInfo().State
	if state.Msgs == 0 {
		return 0, nil
	}
	return state.LastSeq, nil
}

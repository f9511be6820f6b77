// Package stdout publishes to a stream of lines, one structured CloudEvent per line, for
// trials and for log pipelines.
//
// Each event is written with one call of Write, and lines never interleave, even with concurrent
// publishers. After a write that ends in the middle of a line, the next event starts a new line, even
// if another [Publisher] of the same [Output] publishes it. A message is acknowledged when Write
// returns without an error. Its position is its number among the acknowledged messages of its
// publisher, starting at 1.
//
// The package has no checkpoint, because nothing can be read back. After a restart, everything is
// published again, and an object that was deleted in the meantime gets no delete event. Publish
// ignores the Expected field of a message. An acknowledgement doesn't show that the reader received
// the line.
package stdout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// Output is a stream of lines. Several Publishers can share it.
type Output struct {
	mu   sync.Mutex
	w    io.Writer
	torn bool // w ends in the middle of a line
}

// NewOutput returns an Output that writes to w. Nothing else should write to w.
func NewOutput(w io.Writer) *Output { return &Output{w: w} }

// writeLine writes text, which is one line with its newline.
func (o *Output) writeLine(text []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.torn { // end the incomplete line first
		text = append([]byte{'\n'}, text...)
	}
	n, err := o.w.Write(text)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	if n > 0 {
		o.torn = text[n-1] != '\n'
	}
	return err
}

// Publisher writes events as lines.
type Publisher struct {
	out *Output

	mu     sync.Mutex
	line   uint64 // number of complete lines written
	failed error  // error of the last write
	closed bool
}

var _ publish.Publisher = (*Publisher)(nil)

// New returns a publisher that writes to out.
func New(out *Output) *Publisher { return &Publisher{out: out} }

// Publish implements [publish.Publisher]. It calls done before it returns, and blocks as
// long as the writer does.
func (p *Publisher) Publish(ctx context.Context, m *event.Message, done func(position uint64, err error)) {
	line, err := p.write(ctx, m)
	if err != nil {
		done(0, fmt.Errorf("publish %s: %w", m.ID, err))
		return
	}
	done(line, nil)
}

func (p *Publisher) write(ctx context.Context, m *event.Message) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	text, err := m.Structured()
	if err != nil {
		return 0, err
	}
	text = append(text, '\n')
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, errClosed
	}
	if p.failed = p.out.writeLine(text); p.failed != nil {
		return 0, p.failed
	}
	p.line++
	return p.line, nil
}

var errClosed = errors.New("the publisher is closed")

// Ready returns nil unless the last write failed or the publisher is closed. Only a successful write
// clears a failure, so the caller must keep publishing.
func (p *Publisher) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	return p.failed
}

// Close rejects further messages. It does not close the Output.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

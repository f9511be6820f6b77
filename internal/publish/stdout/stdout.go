// Package stdout publishes to a stream of lines: one structured CloudEvent per
// line, for trying things out and for log pipelines.
//
// What it guarantees: a line is written whole, by one call of Write, and lines do
// not mix, whoever publishes. A message is acknowledged when Write has taken it,
// and its position is the number of its line, from 1.
//
// What it does not: there is no checkpoint. Nothing can be read back, so after a
// restart everything is published again, a delete that happened in between is not
// told, and Expected is not looked at. Whether the reader has the line is unknown.
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

// Publisher writes events as lines.
type Publisher struct {
	mu     sync.Mutex
	w      io.Writer
	line   uint64 // of the last line written
	torn   bool   // the last write broke off within a line
	failed error  // of the last write
	closed bool
}

var _ publish.Publisher = (*Publisher)(nil)

// New makes a publisher that writes to w. Nobody else should write to w.
func New(w io.Writer) *Publisher { return &Publisher{w: w} }

// Publish is [publish.Publisher]'s. It calls done before it returns, and blocks as
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
	if p.torn { // end the broken line, so that it spoils no other
		text = append([]byte{'\n'}, text...)
	}
	n, err := p.w.Write(text)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	p.failed = err
	if err != nil {
		p.torn = p.torn || n > 0
		return 0, err
	}
	p.torn = false
	p.line++
	return p.line, nil
}

var errClosed = errors.New("the publisher is closed")

// Ready is nil unless the last write failed.
func (p *Publisher) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	return p.failed
}

// Close refuses further messages. It does not close the writer.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

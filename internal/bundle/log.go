package bundle

import (
	"bytes"
	"io"
	"sync"
)

// Limits of a [Log].
const (
	maxLines = 1000
	maxBytes = 256 << 10
)

// Log keeps the last lines of a log: at most 1,000 lines and 256 KiB. It is safe for concurrent use.
// The zero value is ready for use.
type Log struct {
	mu    sync.Mutex
	lines [][]byte // each ends with a line break
	bytes int
}

var _ io.Writer = (*Log)(nil)

// Write keeps the lines of p, which must be whole lines, as slog's handlers write them. If a line
// exceeds the limit, Write keeps the beginning of the line. Write never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(p) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		kept := append(bytes.Clone(line[:min(len(line), maxBytes-1)]), '\n')
		l.lines = append(l.lines, kept)
		l.bytes += len(kept)
	}
	first := 0
	for ; len(l.lines)-first > maxLines || l.bytes > maxBytes; first++ {
		l.bytes -= len(l.lines[first])
		l.lines[first] = nil
	}
	l.lines = l.lines[first:]
	return len(p), nil
}

// write writes the lines, oldest first.
func (l *Log) write(w io.Writer) error {
	l.mu.Lock()
	all := bytes.Join(l.lines, nil)
	l.mu.Unlock()
	_, err := w.Write(all)
	return err
}

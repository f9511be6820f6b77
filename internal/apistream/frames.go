package apistream

import (
	"bytes"
	"errors"
	"io"
	"time"
)

// maxObject is how long a frame or an item may be, in bytes. It is what client-go's own
// watches take.
const maxObject = 16 << 20

var (
	errCutOff  = errors.New("the answer ends in the middle of an object")
	errTooLong = errors.New("an object is longer than 16 MiB")
)

// window is the part of a stream that is in memory. It starts small, since most watches
// are quiet, and does not stay large.
type window struct {
	r    io.Reader
	b    []byte
	from int // what is before has been used
	to   int // what is behind has not been read
	max  int

	lastRead int  // bytes
	full     bool // which were as many as there was room for
}

const (
	firstSize = 4 << 10
	keepSize  = 128 << 10
)

// fill reads some more behind what is there. It may move that to another place.
func (w *window) fill() error {
	left, room := w.to-w.from, len(w.b)-w.to
	switch {
	case left > w.max:
		return errTooLong
	case room > len(w.b)/4 && (!w.full || len(w.b) >= keepSize):
	case w.from > len(w.b)/4 && (!w.full || len(w.b) >= keepSize): // there is room before it
		copy(w.b, w.b[w.from:w.to])
		w.from, w.to = 0, left
	default:
		b := make([]byte, max(firstSize, 2*len(w.b)))
		copy(b, w.b[w.from:w.to])
		w.b, w.from, w.to = b, 0, left
	}
	n, err := w.r.Read(w.b[w.to:])
	w.to += n
	w.lastRead, w.full = n, w.to == len(w.b)
	if n > 0 {
		return nil // an error comes again
	}
	return err
}

// use goes on behind the first n bytes, which stay as they are until the next fill. What a
// burst or a large object needed is given back after it.
func (w *window) use(n int) {
	w.from += n
	if w.from == w.to && (len(w.b) > keepSize || len(w.b) > firstSize && w.lastRead < len(w.b)/8) {
		w.b, w.from, w.to = nil, 0, 0
	}
}

// frames splits a watch at its newlines: JSON has none within a string.
type frames struct {
	window
	searched int       // behind from there is no newline in so many bytes
	arrived  time.Time // what was read last
}

func newFrames(r io.Reader) *frames { return &frames{window: window{r: r, max: maxObject}} }

// In a burst, as at the beginning of a watch, an API server sends each object by itself,
// and to wake up, to read and to widen the connection's window for each costs as much as to
// decode it. So where much came a moment ago, the next read waits for a little, and takes
// several at once. An object that comes alone is not held up by this: it is read already
// when the wait begins.
const (
	gather = 2 * time.Millisecond
	much   = 4 << 10 // bytes
)

func (f *frames) fill() error {
	if !f.full && f.lastRead >= much && time.Since(f.arrived) < gather {
		time.Sleep(gather)
	}
	err := f.window.fill()
	f.arrived = time.Now()
	return err
}

// next gives the next frame that is not empty, without its newline. It is valid until
// the next call. After the last one the error is that of the reader, and errCutOff if
// something is left over.
func (f *frames) next() ([]byte, error) {
	for {
		rest := f.b[f.from:f.to]
		if n := bytes.IndexByte(rest[f.searched:], '\n'); n >= 0 {
			n += f.searched
			f.searched = 0
			f.use(n + 1)
			if frame := bytes.TrimSpace(rest[:n]); len(frame) > 0 {
				return frame, nil
			}
			continue
		}
		f.searched = len(rest)
		if err := f.fill(); err != nil {
			if !errors.Is(err, errTooLong) && len(bytes.TrimSpace(rest)) > 0 {
				return nil, errCutOff
			}
			return nil, err
		}
	}
}

package apistream

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
)

// maxObject is how long a frame or an item may be, in bytes. It is what client-go's own
// watches take.
const maxObject = 16 << 20

var (
	errCutOff  = errors.New("the answer ends in the middle of an object")
	errTooLong = errors.New("an object is longer than 16 MiB")
)

// window is the part of a stream that is in memory. A stream that waits holds firstSize
// only, as most watches are quiet; what a burst needs it shares with the others.
type window struct {
	r    io.Reader
	b    []byte
	from int // what is before has been used
	to   int // what is behind has not been read
	max  int

	first  []byte  // firstSize, to wait with
	shared *[]byte // of windows, if b is that

	lastRead int  // bytes
	full     bool // which were as many as there was room for
}

const (
	firstSize  = 4 << 10
	sharedSize = 128 << 10
)

var windows = sync.Pool{New: func() any { b := make([]byte, sharedSize); return &b }}

// fill reads some more behind what is there. It may move that to another place.
func (w *window) fill() error {
	left, room := w.to-w.from, len(w.b)-w.to
	switch {
	case left > w.max:
		return errTooLong
	case left == 0:
		w.giveBack()
		if w.first == nil {
			w.first = make([]byte, firstSize)
		}
		w.move(w.first)
	case room > len(w.b)/4:
	case w.from > len(w.b)/4: // there is room before it
		w.move(w.b)
	case len(w.b) < sharedSize:
		shared := windows.Get().(*[]byte)
		w.move(*shared)
		w.shared = shared
	default:
		larger := make([]byte, 2*len(w.b))
		copy(larger, w.b[w.from:w.to])
		w.giveBack()
		w.b, w.from, w.to = larger, 0, left
	}
	n, err := w.r.Read(w.b[w.to:])
	w.to += n
	w.lastRead, w.full = n, w.to == len(w.b)
	if n > 0 {
		return nil // an error comes again
	}
	return err
}

// move has what is left begin a buffer.
func (w *window) move(to []byte) {
	n := copy(to, w.b[w.from:w.to])
	w.b, w.from, w.to = to, 0, n
}

// giveBack is called when nothing that was read is needed any more, or it is elsewhere.
func (w *window) giveBack() {
	if w.shared != nil {
		windows.Put(w.shared)
		w.shared = nil
	}
}

// use goes on behind the first n bytes, which stay as they are until the next fill.
func (w *window) use(n int) { w.from += n }

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
			// What rest was in may be another stream's by now.
			if left := f.b[f.from:f.to]; !errors.Is(err, errTooLong) && len(bytes.TrimSpace(left)) > 0 {
				return nil, errCutOff
			}
			return nil, err
		}
	}
}

package apistream

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
)

// maxObject is the maximum size of a frame or an item in bytes, as in client-go's watches.
const maxObject = 16 << 20

var (
	errCutOff  = errors.New("the response ends in the middle of an object")
	errTooLong = errors.New("an object is larger than 16 MiB")
)

// window is the part of a stream that is in memory. Most watches are quiet, so a waiting
// stream holds only firstSize bytes. A burst uses a buffer from a shared pool.
type window struct {
	r    io.Reader
	b    []byte
	from int // end of the used bytes
	to   int // end of the read bytes
	max  int // maximum number of unused bytes; an incomplete object must fit into them

	first  []byte  // the buffer of a waiting stream, firstSize bytes
	shared *[]byte // b, if b comes from the pool windows; otherwise nil

	lastRead int  // bytes of the last read
	full     bool // the last read filled the buffer
}

const (
	firstSize  = 4 << 10
	sharedSize = 128 << 10
)

var windows = sync.Pool{New: func() any { b := make([]byte, sharedSize); return &b }}

// fill reads more bytes. It can move the unused bytes within the buffer or to another buffer.
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
	case w.from > len(w.b)/4: // moving the unused bytes to the front makes room
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
		return nil // the next read returns the error again
	}
	return err
}

// move moves the unused bytes to the beginning of a buffer.
func (w *window) move(to []byte) {
	n := copy(to, w.b[w.from:w.to])
	w.b, w.from, w.to = to, 0, n
}

// giveBack returns the shared buffer to the pool. The caller no longer needs its content.
func (w *window) giveBack() {
	if w.shared != nil {
		windows.Put(w.shared)
		w.shared = nil
	}
}

// use marks n bytes as used. They stay valid until the next fill.
func (w *window) use(n int) { w.from += n }

// frames splits a watch at its newlines. A JSON string cannot contain a newline.
type frames struct {
	window
	searched int       // this many bytes after from contain no newline
	arrived  time.Time // time of the last read
}

func newFrames(r io.Reader) *frames { return &frames{window: window{r: r, max: maxObject}} }

// In a burst, for example at the start of a watch, an API server writes each object separately.
// Waking up, reading, and updating the flow-control window for each object takes as long as
// decoding the object. So after a large read, the next read first waits briefly, and then reads
// several objects at once. The wait does not delay an object that arrives alone, because that
// object is read before the wait.
const (
	burstDelay = 2 * time.Millisecond
	burstSize  = 4 << 10 // bytes
)

func (f *frames) fill() error {
	if !f.full && f.lastRead >= burstSize && time.Since(f.arrived) < burstDelay {
		time.Sleep(burstDelay)
	}
	err := f.window.fill()
	f.arrived = time.Now()
	return err
}

// next returns the next non-empty frame, without its newline. The frame is valid until the next
// call. After the last frame, next returns the error of the reader, or errCutOff if an incomplete
// frame is left.
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
			// fill might have returned the memory of rest to the pool, and another stream might use it now.
			if left := f.b[f.from:f.to]; !errors.Is(err, errTooLong) && len(bytes.TrimSpace(left)) > 0 {
				return nil, errCutOff
			}
			return nil, err
		}
	}
}

package apistream

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// endless is a reader that returns one frame without an end.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' ' + 1
	}
	e.n += len(p)
	return len(p), nil
}

// TestFrameTooLong verifies that a frame above the size limit causes an error before it fills the
// memory.
func TestFrameTooLong(t *testing.T) {
	in := &endless{}
	got := read(t, in)
	if len(got) != 1 || !strings.Contains(got[0], errTooLong.Error()) {
		t.Errorf("got %q", got)
	}
	if in.n > 4*maxObject {
		t.Errorf("read %d bytes", in.n)
	}
	if _, err := readList(&endless{}, takeText); !errors.Is(err, jsonscan.ErrSyntax) {
		t.Errorf("a frame without an end, read as a list: %v", err)
	}
	if _, err := readList(io.MultiReader(strings.NewReader(`{"items":["`), &endless{}), takeText); !errors.Is(err, errTooLong) {
		t.Errorf("a list with an endless item: %v", err)
	}
}

// TestWindowShrinks verifies that a stream releases the memory of a large object after use.
func TestWindowShrinks(t *testing.T) {
	f := newFrames(strings.NewReader(strings.Repeat("x", 2*sharedSize) + "\ny\n"))
	for _, want := range []int{2 * sharedSize, 1} {
		frame, err := f.next()
		if err != nil || len(frame) != want {
			t.Fatalf("got %d bytes, %v, want %d", len(frame), err, want)
		}
	}
	if _, err := f.next(); !errors.Is(err, io.EOF) || len(f.b) > firstSize {
		t.Errorf("%d bytes are still held: %v", len(f.b), err)
	}
}

// TestStreamsShareMemory verifies that the frame of a stream stays valid until the next read of that
// stream, even if other streams read. A waiting stream holds little memory.
func TestStreamsShareMemory(t *testing.T) {
	const streams, length = 8, 3 * firstSize
	var all [streams]*frames
	for i := range all {
		line := strings.Repeat(string(rune('a'+i)), length) + "\n"
		all[i] = newFrames(io.MultiReader(strings.NewReader(line), strings.NewReader(line)))
	}
	for range 2 {
		var held [streams][]byte
		for i, f := range all {
			var err error
			if held[i], err = f.next(); err != nil {
				t.Fatal(err)
			}
		}
		for i, frame := range held {
			if want := strings.Repeat(string(rune('a'+i)), length); string(frame) != want {
				t.Errorf("stream %d has %.3q… of another", i, frame)
			}
		}
	}
	for _, f := range all {
		if _, err := f.next(); !errors.Is(err, io.EOF) || len(f.b) != firstSize || f.shared != nil {
			t.Errorf("at the end %d bytes are still held: %v", len(f.b), err)
		}
	}
}

// TestTruncatedStreams verifies that a stream that ends in the middle of an object returns
// errCutOff, even if other streams use its former memory.
func TestTruncatedStreams(t *testing.T) {
	var streams sync.WaitGroup
	for i := range 8 {
		text := strings.Repeat("x", 100<<10)
		if i%2 == 0 {
			text = strings.Repeat(" ", 90<<10) + "\nx"
		}
		streams.Go(func() {
			for range 100 {
				f := newFrames(strings.NewReader(text))
				for {
					_, err := f.next()
					if err == nil {
						continue
					}
					if !errors.Is(err, errCutOff) {
						t.Errorf("stream %d: %v, want %v", i, err, errCutOff)
					}
					f.giveBack()
					break
				}
			}
		})
	}
	streams.Wait()
}

// TestABurstAllocatesNothing verifies that streams reuse shared buffers.
func TestABurstAllocatesNothing(t *testing.T) {
	line := strings.Repeat("x", 3*firstSize) + "\n"
	f := newFrames(nil)
	var text strings.Reader
	f.r = &text
	read := func() {
		text.Reset(line)
		if frame, err := f.next(); err != nil || len(frame) != len(line)-1 {
			t.Fatalf("got %d bytes, %v", len(frame), err)
		}
	}
	read()
	if n := testing.AllocsPerRun(100, read); n >= 1 {
		t.Errorf("%.1f allocations for a frame that needs the shared memory, want none", n)
	}
}

// FuzzFrames verifies that the frames are the lines of the text, however the text is split into
// reads.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("a\nbc\n\nd"), 3)
	f.Add(bytes.Repeat([]byte("0123456789\n"), 1000), 700)
	f.Fuzz(func(t *testing.T, text []byte, piece int) {
		if piece < 1 {
			return
		}
		in := newFrames(&pieces{text, piece})
		lines := bytes.Split(text, []byte("\n"))
		rest := bytes.TrimSpace(lines[len(lines)-1])
		for _, line := range lines[:len(lines)-1] {
			if line = bytes.TrimSpace(line); len(line) == 0 {
				continue
			}
			got, err := in.next()
			if err != nil || !bytes.Equal(got, line) {
				t.Fatalf("got %q, %v, want %q", got, err, line)
			}
		}
		if _, err := in.next(); errors.Is(err, errCutOff) != (len(rest) > 0) || err == nil {
			t.Errorf("at the end, with %q left: %v", rest, err)
		}
	})
}

// pieces is a reader that returns n bytes at a time.
type pieces struct {
	text  []byte
	piece int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.piece)], p.text)
	p.text = p.text[n:]
	return n, nil
}

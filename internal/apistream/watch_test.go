package apistream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// item is an object that was taken from a stream: its text.
type item struct {
	metav1.TypeMeta
	text string
}

func (i *item) DeepCopyObject() runtime.Object { c := *i; return &c }

func takeText(s *jsonscan.Scanner) (runtime.Object, error) {
	text := s.Skip()
	if s.Err() != nil {
		return nil, s.Err()
	}
	if strings.Contains(string(text), "refuse") {
		return nil, errors.New("refused")
	}
	return &item{text: string(text)}, nil
}

// read gives all that a watch of this text shows, in short.
func read(t *testing.T, r io.Reader) []string {
	t.Helper()
	var shown []string
	w := &watcher{
		body: io.NopCloser(r), cancel: func() {}, decode: takeText, result: make(chan watch.Event), stopped: make(chan struct{}),
		show: func(e watch.Event) { shown = append(shown, describe(e)) },
	}
	go w.run()
	var got []string
	for e := range w.ResultChan() {
		got = append(got, describe(e))
	}
	w.Stop()
	w.Stop()
	if strings.Join(got, "\n") != strings.Join(shown, "\n") {
		t.Errorf("shown:\n%s\nhanded on:\n%s", strings.Join(shown, "\n"), strings.Join(got, "\n"))
	}
	return got
}

func describe(e watch.Event) string {
	switch o := e.Object.(type) {
	case *item:
		return fmt.Sprintf("%s %s", e.Type, o.text)
	case *metav1.PartialObjectMetadata:
		return fmt.Sprintf("%s %s %s", e.Type, o.ResourceVersion, o.Annotations[metav1.InitialEventsAnnotationKey])
	case *metav1.Status:
		return fmt.Sprintf("%s %d %s %s", e.Type, o.Code, o.Reason, o.Message)
	}
	return fmt.Sprintf("%s %T", e.Type, e.Object)
}

func TestWatch(t *testing.T) {
	const unreadable = "ERROR 502 Unreadable "
	const syntax = unreadable + "watch: not valid JSON, or not of the expected form"
	big := `{"type":"ADDED","object":"` + strings.Repeat("x", 3*firstSize) + `"}`
	for name, test := range map[string]struct {
		in   string
		want []string
	}{
		"nothing": {"", nil},
		"events, unknown fields, empty lines": {
			`{"type":"ADDED","object":{"a":1}}` + "\n\n \r\n" + `{"x":[1],"object":{"a":2},"type":"MODIFIED","y":null}` + "\n" + `{"type":"DELETED","object":{"a":3}}` + "\n",
			[]string{`ADDED {"a":1}`, `MODIFIED {"a":2}`, `DELETED {"a":3}`},
		},
		"bookmarks": {
			`{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7","creationTimestamp":null},"spec":{"containers":null}}}` + "\n" +
				`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n",
			[]string{"BOOKMARK 7 ", "BOOKMARK 8 true"},
		},
		"an error of the API server's is the last": {
			`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410,"new":1}}` + "\n" + `{"type":"ADDED","object":1}` + "\n",
			[]string{"ERROR 410 Expired too old"},
		},
		"large among small":          {`{"type":"ADDED","object":1}` + "\n" + big + "\n" + `{"type":"ADDED","object":2}` + "\n", []string{"ADDED 1", "ADDED " + big[25:len(big)-1], "ADDED 2"}},
		"cut off":                    {`{"type":"ADDED","object":1}` + "\n" + `{"type":"ADDED","object":2}`, []string{"ADDED 1", unreadable + errCutOff.Error()}},
		"not JSON":                   {`{"type":"ADDED","object":{"a":1,}}` + "\n" + `{"type":"ADDED","object":2}` + "\n", []string{syntax}},
		"two on a line":              {`{"type":"ADDED","object":1}{"type":"ADDED","object":2}` + "\n", []string{syntax}},
		"a newline in an object":     {`{"type":"ADDED",` + "\n" + `"object":1}` + "\n", []string{syntax}},
		"a type twice":               {`{"type":"ADDED","type":"DELETED","object":1}` + "\n", []string{syntax}},
		"an object twice":            {`{"object":1,"object":2,"type":"ADDED"}` + "\n", []string{syntax}},
		"an object before and after": {`{"object":1,"type":"ADDED","object":2}` + "\n", []string{syntax}},
		"a type that is no text":     {`{"type":1,"object":1}` + "\n", []string{syntax}},
		"an unknown type":            {`{"type":"PATCHED","object":{}}` + "\n", []string{unreadable + "watch: an event of unknown type"}},
		"no type":                    {`{"object":{}}` + "\n", []string{unreadable + "watch: an event of unknown type"}},
		"no object":                  {`{"type":"ADDED"}` + "\n", []string{unreadable + "watch: an event without an object"}},
		"an array":                   {"[]\n", []string{syntax}},
		"an error without form":      {`{"type":"ERROR","object":[]}` + "\n", []string{syntax}},
		"a bookmark without":         {`{"type":"BOOKMARK","object":{"metadata":1}}` + "\n", []string{syntax}},
		"what is refused":            {`{"type":"ADDED","object":"refuse"}` + "\n" + `{"type":"ADDED","object":1}` + "\n", []string{unreadable + "watch: refused"}},
	} {
		for how, through := range map[string]func(io.Reader) io.Reader{
			"": func(r io.Reader) io.Reader { return r }, " by bytes": iotest.OneByteReader, " by halves": iotest.HalfReader, " with its end": iotest.DataErrReader,
		} {
			t.Run(name+how, func(t *testing.T) {
				got := read(t, through(strings.NewReader(test.in)))
				if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
				}
			})
		}
	}
}

// TestALostConnection ends a watch without an error: the next one goes on from there.
func TestALostConnection(t *testing.T) {
	whole := `{"type":"ADDED","object":1}` + "\n"
	got := read(t, io.MultiReader(strings.NewReader(whole), iotest.ErrReader(errors.New("reset by peer"))))
	if len(got) != 1 || got[0] != "ADDED 1" {
		t.Errorf("got %q", got)
	}
	got = read(t, io.MultiReader(strings.NewReader(whole+`{"type":`), iotest.ErrReader(errors.New("reset by peer"))))
	if len(got) != 2 || !strings.Contains(got[1], errCutOff.Error()) {
		t.Errorf("in the middle of an object: got %q", got)
	}
}

// endless is a frame that does not end.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' ' + 1
	}
	e.n += len(p)
	return len(p), nil
}

// TestAFrameThatIsTooLong is given up before all memory is.
func TestAFrameThatIsTooLong(t *testing.T) {
	in := &endless{}
	got := read(t, in)
	if len(got) != 1 || !strings.Contains(got[0], errTooLong.Error()) {
		t.Errorf("got %q", got)
	}
	if in.n > 4*maxObject {
		t.Errorf("it read %d bytes", in.n)
	}
	if _, err := readList(&endless{}, takeText); !errors.Is(err, jsonscan.ErrSyntax) {
		t.Errorf("a list of that: %v", err)
	}
	if _, err := readList(io.MultiReader(strings.NewReader(`{"items":["`), &endless{}), takeText); !errors.Is(err, errTooLong) {
		t.Errorf("a list with an endless item: %v", err)
	}
}

// TestStop: a watch that nobody reads ends when it is stopped.
func TestStop(t *testing.T) {
	r, in := io.Pipe()
	w := &watcher{
		body: r, cancel: func() { r.Close() }, decode: takeText, result: make(chan watch.Event), stopped: make(chan struct{}),
		show: func(watch.Event) {},
	}
	ended := make(chan struct{})
	go func() { defer close(ended); w.run() }()
	if _, err := in.Write([]byte(`{"type":"ADDED","object":1}` + "\n")); err != nil {
		t.Fatal(err)
	}
	w.Stop()
	<-ended
	if _, ok := <-w.ResultChan(); ok {
		t.Error("an event after the end")
	}
}

// TestWindowShrinks: what one large object needed is not kept.
func TestWindowShrinks(t *testing.T) {
	f := newFrames(strings.NewReader(strings.Repeat("x", 2*sharedSize) + "\ny\n"))
	for _, want := range []int{2 * sharedSize, 1} {
		frame, err := f.next()
		if err != nil || len(frame) != want {
			t.Fatalf("got %d bytes, %v, want %d", len(frame), err, want)
		}
	}
	if _, err := f.next(); !errors.Is(err, io.EOF) || len(f.b) > firstSize {
		t.Errorf("%d bytes are kept: %v", len(f.b), err)
	}
}

// TestStreamsShareMemory: what one stream has read stays until it reads on, whatever the
// others read, and a stream that waits keeps little.
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
			t.Errorf("at the end %d bytes are kept: %v", len(f.b), err)
		}
	}
}

// TestStreamsThatAreCutOff: whatever other streams have read since, a stream that ends in the
// middle of an object is cut off, and not at its end.
func TestStreamsThatAreCutOff(t *testing.T) {
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

// TestABurstAllocatesNothing: what streams share is used again.
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

// FuzzFrames: whatever the pieces in which a text arrives, its frames are its lines.
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

// pieces is a reader that gives so many bytes at a time.
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

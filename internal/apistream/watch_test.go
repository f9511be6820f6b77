package apistream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// item is an object that holds its text from the stream.
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

// read returns a summary of each event of a watch whose text r returns.
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
		"an unknown type":            {`{"type":"PATCHED","object":{}}` + "\n", []string{unreadable + "watch: the event has an unknown type"}},
		"no type":                    {`{"object":{}}` + "\n", []string{unreadable + "watch: the event has an unknown type"}},
		"no object":                  {`{"type":"ADDED"}` + "\n", []string{unreadable + "watch: the event has no object"}},
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

// TestWatchDeep verifies that an object in a watch may have as many nesting levels as an object
// alone.
func TestWatchDeep(t *testing.T) {
	deep := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	const limit = 10_000 // of encoding/json
	for _, frame := range []string{`{"type":"ADDED","object":%s}`, `{"object":%s,"type":"ADDED"}`} {
		for levels, want := range map[int]string{limit: "ADDED " + deep(limit), limit + 1: "ERROR"} {
			if got := read(t, strings.NewReader(fmt.Sprintf(frame+"\n", deep(levels)))); len(got) != 1 || !strings.HasPrefix(got[0], want) {
				t.Errorf("%d levels in %s: got %.60s", levels, frame, got)
			}
		}
	}
}

// FuzzEvent compares the decoding of events with encoding/json.
func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"type":"ADDED","object":{"a":1}}`))
	f.Add([]byte(`{"x":[1],"object":{"a":2},"type":"DELETED","y":null}`))
	f.Add([]byte(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8"}}}`))
	f.Fuzz(func(t *testing.T, frame []byte) {
		w := &watcher{decode: takeText}
		e := w.event(frame)
		o, ok := e.Object.(*item)
		if !ok {
			return
		}
		if !json.Valid(frame) {
			t.Fatalf("%q is not JSON, but became %s", frame, describe(e))
		}
		if bytes.Contains(frame, []byte(`\u`)) {
			return
		}
		members := map[string]json.RawMessage{} // encoding/json would match the names of fields regardless of case
		if err := json.Unmarshal(frame, &members); err != nil {
			t.Fatalf("%q is no object for encoding/json: %v", frame, err)
		}
		if o.text != string(members["object"]) || string(members["type"]) != `"`+string(e.Type)+`"` {
			t.Errorf("%q became %s", frame, describe(e))
		}
	})
}

// TestWatchConnectionLost verifies that a lost connection between two events ends a watch without an
// error, so that the next watch continues. Within an event, it causes an error.
func TestWatchConnectionLost(t *testing.T) {
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

// TestStop verifies that a watch ends when it is stopped, even if nothing receives its events.
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

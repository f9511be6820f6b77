package apistream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// resultBuffer is the number of decoded events that can wait for the reflector, so that decoding and
// storing run in parallel.
const resultBuffer = 32

// watcher reads a watch. It ends when the API server ends the watch, when it is stopped, or
// after an error.
type watcher struct {
	body    io.ReadCloser
	cancel  context.CancelFunc
	decode  Decode
	show    func(watch.Event)
	result  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
}

var _ watch.Interface = (*watcher)(nil)

// ResultChan implements [watch.Interface].
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

// Stop implements [watch.Interface].
func (w *watcher) Stop() {
	w.stop.Do(func() {
		close(w.stopped)
		w.cancel() // unblocks a read
	})
}

func (w *watcher) run() {
	defer close(w.result)
	defer w.cancel()
	defer w.body.Close()
	f := newFrames(w.body)
	defer f.giveBack()
	for {
		frame, err := f.next()
		var e watch.Event
		switch {
		case err == nil:
			e = w.event(frame)
		case errors.Is(err, errCutOff), errors.Is(err, errTooLong):
			e = failed(err)
		default: // the watch ended or the connection was lost; the next watch continues from here
			return
		}
		select {
		case <-w.stopped:
			return // show must not be called after Stop
		default:
		}
		w.show(e)
		select {
		case w.result <- e:
		case <-w.stopped:
			return
		}
		if e.Type == watch.Error {
			return
		}
	}
}

// event decodes a frame:
//
//	{"type":"ADDED","object":{...}}
func (w *watcher) event(frame []byte) watch.Event {
	var e watch.Event
	var err error
	var early []byte // text of an object that precedes its type
	s := jsonscan.NewAt(-1, frame)
	for s.Object(); s.Next() && err == nil; {
		switch string(s.Key()) {
		case "type":
			if e.Type != "" {
				s.Fail()
			}
			e.Type = eventType(s.Text())
		case "object":
			switch {
			case e.Object != nil || early != nil:
				s.Fail()
			case e.Type == "":
				early = s.Skip()
			default:
				e.Object, err = w.object(e.Type, &s)
			}
		default:
			s.Skip()
		}
	}
	if err == nil {
		err = s.End()
	}
	if err == nil && early != nil {
		s = jsonscan.New(early)
		e.Object, err = w.object(e.Type, &s)
	}
	switch {
	case err != nil:
		return failed(fmt.Errorf("watch: %w", err))
	case e.Object == nil || e.Type == "":
		return failed(errors.New("watch: the event has no object"))
	}
	return e
}

func eventType(t []byte) watch.EventType {
	for _, known := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error} {
		if string(t) == string(known) {
			return known
		}
	}
	return watch.EventType(t) // object rejects it
}

// object decodes the object of an event.
func (w *watcher) object(t watch.EventType, s *jsonscan.Scanner) (runtime.Object, error) {
	switch t {
	case watch.Added, watch.Modified, watch.Deleted:
		return w.decode(s)
	case watch.Bookmark:
		// A bookmark has the resource's own type, but only metadata.
		o := &metav1.PartialObjectMetadata{}
		return o, unmarshal(s, o)
	case watch.Error:
		o := &metav1.Status{}
		return o, unmarshal(s, o)
	}
	return nil, errors.New("the event has an unknown type")
}

func unmarshal(s *jsonscan.Scanner, into any) error {
	text := s.Skip()
	if s.Err() != nil || json.Unmarshal(text, into) != nil {
		return jsonscan.ErrSyntax
	}
	return nil
}

// failed returns an error of this package in the form of an API server error. Reflectors do not know
// its reason, so they list again.
func failed(err error) watch.Event {
	return watch.Event{Type: watch.Error, Object: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusBadGateway, Reason: reasonUnreadable, Message: err.Error(),
	}}
}

const reasonUnreadable metav1.StatusReason = "Unreadable"

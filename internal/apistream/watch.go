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

// ahead is how many events may be decoded before the first of them is taken, so that
// reading and storing go on side by side.
const ahead = 32

// watcher reads a watch. It ends when the API server ends it, when it is stopped, or
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

// ResultChan is part of [watch.Interface].
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

// Stop is part of [watch.Interface].
func (w *watcher) Stop() {
	w.stop.Do(func() {
		close(w.stopped)
		w.cancel() // a read that waits returns
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
		default: // the end, or the connection was lost: the next watch goes on from here
			return
		}
		select {
		case <-w.stopped:
			return // before it is shown: whoever stopped it has gone on
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

// event makes an event of a frame:
//
//	{"type":"ADDED","object":{...}}
func (w *watcher) event(frame []byte) watch.Event {
	var e watch.Event
	var err error
	var early []byte // an object before its type
	s := jsonscan.New(frame)
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
		return failed(errors.New("watch: an event without an object"))
	}
	return e
}

func eventType(t []byte) watch.EventType {
	for _, known := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error} {
		if string(t) == string(known) {
			return known
		}
	}
	return watch.EventType(t) // has no object
}

// object reads the object of an event.
func (w *watcher) object(t watch.EventType, s *jsonscan.Scanner) (runtime.Object, error) {
	switch t {
	case watch.Added, watch.Modified, watch.Deleted:
		return w.decode(s)
	case watch.Bookmark:
		// It is of the resource's own type, and has metadata only.
		o := &metav1.PartialObjectMetadata{}
		return o, unmarshal(s, o)
	case watch.Error:
		o := &metav1.Status{}
		return o, unmarshal(s, o)
	}
	return nil, errors.New("an event of unknown type")
}

func unmarshal(s *jsonscan.Scanner, into any) error {
	text := s.Skip()
	if s.Err() != nil || json.Unmarshal(text, into) != nil {
		return jsonscan.ErrSyntax
	}
	return nil
}

// failed is an error of ours as the API server would report one of its own. Its reason
// is none that reflectors know, so that they list again.
func failed(err error) watch.Event {
	return watch.Event{Type: watch.Error, Object: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusBadGateway, Reason: reasonUnreadable, Message: err.Error(),
	}}
}

const reasonUnreadable metav1.StatusReason = "Unreadable"

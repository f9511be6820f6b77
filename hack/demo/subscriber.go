package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// subscriber is a subscriber as a user might write it, with nothing but a client of the
// bus: it keeps the state of every object as the events tell it, and looks out for
// events that break the promise.
type subscriber struct {
	close func()

	mu      sync.Mutex
	events  []event
	last    map[string]event // of each object, by its subject on the bus
	ids     map[string]bool
	broken  error         // the first breach of the promise
	changed chan struct{} // closed and made anew at each event
}

// subscribe reads the bus from its start, until close.
func subscribe(ctx context.Context, b bus) (*subscriber, error) {
	s := &subscriber{last: map[string]event{}, ids: map[string]bool{}, changed: make(chan struct{})}
	var err error
	if s.close, err = b.subscribe(ctx, s.take); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return s, nil
}

// retry tries again while it fails in a way that waiting may cure.
func retry[T any](ctx context.Context, curable func(error) bool, do func() (T, error)) (T, error) {
	timeout := time.After(patience)
	for {
		result, err := do()
		if err == nil || !curable(err) {
			return result, err
		}
		select {
		case <-timeout:
			return result, fmt.Errorf("%w, for %s", err, patience)
		case <-ctx.Done():
			return result, context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

// take is called with one event after the other.
func (s *subscriber) take(e event, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.check(e)
	}
	if err != nil && s.broken == nil {
		s.broken = err
	}
	s.events = append(s.events, e)
	s.ids[e.id] = true
	if !e.isMarker() {
		s.last[e.busSubject] = e
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// check is what every subscriber may rely on.
func (s *subscriber) check(e event) error {
	last, known := s.last[e.busSubject]
	live := known && last.kind != "deleted"
	switch {
	case s.ids[e.id]:
		return fmt.Errorf("%s came twice", e)
	case e.isMarker():
		return nil
	case live && (e.uid != last.uid || e.previous != last.version):
		return fmt.Errorf("%s follows version %q, but the event before it was %s", e, e.previous, last)
	case live == (e.kind == "created" || e.kind == "snapshot"):
		return fmt.Errorf("%s came, but the event before it was %s", e, last)
	case known && e.sequence < last.sequence:
		return fmt.Errorf("%s came after %s", e, last)
	}
	return nil
}

// count is how many messages there were.
func (s *subscriber) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events)
}

// await blocks until missing, which is given all events so far, says that no more
// is to come.
func (s *subscriber) await(ctx context.Context, missing func([]event) []string) error {
	timeout := time.After(patience)
	for {
		s.mu.Lock()
		absent, broken, changed := missing(s.events), s.broken, s.changed
		s.mu.Unlock()
		if broken != nil {
			return fmt.Errorf("the promise is broken: %w", broken)
		}
		if len(absent) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-timeout:
			return fmt.Errorf("the bus has not brought within %s:\n  %s", patience, strings.Join(absent, "\n  "))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// state is what the events say exists: the version of each object.
func (s *subscriber) state() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions := map[string]string{}
	for _, e := range s.last {
		if e.kind != "deleted" {
			versions[objectName(e.resource, e.namespace, e.name)] = e.version
		}
	}
	return versions
}

// subject is where on the bus an object's events are.
func (s *subscriber) subject(resource, name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for subject, e := range s.last {
		if e.resource == resource && e.name == name {
			return subject
		}
	}
	return ""
}

func (s *subscriber) summary(out *console, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	deletes, recovered := 0, 0
	for _, e := range s.events {
		if e.kind == "deleted" {
			deletes++
			if e.cause == "reconcile" {
				recovered++
			}
		}
	}
	objects := slices.DeleteFunc(slices.Clone(s.events), func(e event) bool { return e.isMarker() })
	out.say("all acts are done")
	out.done("%d events of %d objects in %s: 0 lost, 0 twice, 0 out of order", len(objects), len(s.last), took.Round(time.Second))
	out.note("not lost: after each act the state rebuilt from the events was that of the API server, object by object and")
	out.note("version by version, and each event's previousversion was the version of the event before it")
	out.note("%d of the %d deletes have the cause reconcile: found by comparing the bus with the cluster, as after the kill", recovered, deletes)
}

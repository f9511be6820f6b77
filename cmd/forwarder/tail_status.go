package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// tailStatus tells a person why nothing comes, once for each time that it begins.
type tailStatus struct {
	w      io.Writer
	source string // "stream KUBERELAY"
	hint   string // what to think of where the bus cannot be reached
	state  tailState
}

type tailState int

const (
	tailReading tailState = iota
	tailWaitingForSource
	tailWaitingForBus
)

// notify is told by the subscription how it goes.
func (s *tailStatus) notify(err error) {
	was := s.state
	switch {
	case err == nil:
		s.state = tailReading
	case errors.Is(err, publish.ErrMissing):
		s.state = tailWaitingForSource
	default:
		s.state = tailWaitingForBus
	}
	if s.state == was {
		return
	}
	switch s.state {
	case tailReading:
		s.say("reading the bus")
	case tailWaitingForSource:
		s.say("the %s does not exist yet; waiting for a forwarder", s.source)
	case tailWaitingForBus:
		s.say("%v; trying on%s", err, s.hint)
	}
}

// foreign reports what cannot be shown.
func (s *tailStatus) foreign(d publish.Delivery, err error) {
	s.say("skipped message %s of %q: %v", d.Place(), d.Subject, err)
}

func (s *tailStatus) say(format string, args ...any) {
	fmt.Fprintf(s.w, "forwarder: "+format+"\n", args...)
}

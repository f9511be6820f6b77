package tail

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/terminal"
)

// Status tells the user why no events arrive. It prints a line only when the reason changes.
type Status struct {
	W      io.Writer
	Source string // the stream or topic to read, such as "stream KUBERELAY"
	Hint   string // added when the bus cannot be reached
	state  phase
	mu     sync.Mutex // one line at a time
}

type phase int

const (
	reading phase = iota
	waitingForSource
	waitingForBus
)

// notify tells the user why no events arrive. The subscription calls it with the reason, or with
// nil when it reads the bus, even if the bus has no new events.
func (s *Status) notify(err error) {
	was := s.state
	switch {
	case err == nil:
		s.state = reading
	case errors.Is(err, publish.ErrMissing):
		s.state = waitingForSource
	default:
		s.state = waitingForBus
	}
	if s.state == was {
		return
	}
	switch s.state {
	case reading:
		s.Say("reading the bus")
	case waitingForSource:
		s.Say("the %s does not exist yet; waiting for a forwarder", s.Source)
	case waitingForBus:
		s.Say("%v; trying again%s", err, s.Hint)
	}
}

// skipped reports a message that can't be shown.
func (s *Status) skipped(d publish.Delivery, err error) {
	s.Say("skipped message %s of %q: %v", d.Place(), d.Subject, err)
}

// Say prints a line, and escapes unprintable characters. It is safe for concurrent use.
func (s *Status) Say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.W.Write(terminal.Escape(fmt.Appendf(nil, "forwarder: "+format+"\n", args...)))
}

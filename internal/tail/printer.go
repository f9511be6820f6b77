package tail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// Bus is a bus to read events from. If it also has the method Before, as NATS does, Printer uses
// Before to find the state of an object before its first printed event.
type Bus interface {
	Subscribe(ctx context.Context, o publish.SubscribeOptions, yield func(*event.Message, publish.Delivery) error) error
}

// searchable is a bus that can return the event before a position.
type searchable interface {
	Before(ctx context.Context, subject string, position uint64) (*event.Message, error)
}

// Printer prints the events of a bus, one line each. Call [Printer.Run] once.
type Printer struct {
	Out    io.Writer
	Status Status
	Filter Filter
	From   publish.From
	Since  time.Time // start time for publish.FromTime
	Count  int       // maximum number of events; 0 for no limit
	ToEnd  bool      // stop at the current end of the bus; do not wait for a missing or unreachable bus
	JSON   bool      // print whole events as structured CloudEvents instead of text
	Color  bool      // use terminal colors in text

	Diff     bool // show what each update changed
	SkipPast bool // do not read the state before the first event of an object

	states   *States // nil without Diff
	noAnswer bool    // the last call of Before failed, and the subscription has not reconnected since
	printed  int
	line     func(Event) ([]byte, error)
	diff     func(Event, Change) ([]byte, error)
}

// errEnough ends a subscription that has yielded enough events, for example Count.
var errEnough = errors.New("enough")

// Run prints events until ctx is canceled, Count events are printed, the reader of Out closes it, or
// the bus can't be read. With ToEnd, it also stops at the current end of the bus. subjectPrefix is
// the prefix of the subjects on NATS.
func (p *Printer) Run(ctx context.Context, bus Bus, subjectPrefix string) error {
	text := &Text{Color: p.Color}
	p.line = func(e Event) ([]byte, error) { return []byte(text.Line(e)), nil }
	p.diff = func(e Event, c Change) ([]byte, error) { return []byte(text.LineAndDiff(e, c)), nil }
	if p.JSON {
		p.line, p.diff = Event.JSON, Event.JSONWithPatch
	}
	options := publish.SubscribeOptions{
		Filters: p.Filter.Subjects(subjectPrefix),
		From:    p.From,
		Since:   p.Since,
		Notify:  p.Status.notify,
		Foreign: p.Status.skipped,
	}
	if p.Diff {
		p.states = NewStates()
		p.lookBack(ctx, bus, &options)
	}
	var err error
	if p.ToEnd {
		err = readToEnd(ctx, bus, options, p.print)
	} else {
		err = bus.Subscribe(ctx, options, p.print)
	}
	if errors.Is(err, errEnough) || isClosedPipe(err) {
		return nil
	}
	return err
}

// isClosedPipe reports whether the reader of the output closed it, as head does.
func isClosedPipe(err error) bool {
	return slices.ContainsFunc([]error{syscall.EPIPE, io.ErrClosedPipe, os.ErrClosed}, func(closed error) bool { return errors.Is(err, closed) })
}

func (p *Printer) print(m *event.Message, d publish.Delivery) error {
	e := Event{Delivery: d, Message: m}
	if !p.Filter.Match(e) {
		return nil
	}
	var line []byte
	var err error
	if p.states == nil {
		line, err = p.line(e)
	} else {
		line, err = p.diff(e, p.states.Change(e))
	}
	if err != nil {
		p.Status.skipped(d, err)
		return nil
	}
	if _, err := p.Out.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("print event %q: %w", m.ID, err)
	}
	p.printed++
	if p.printed == p.Count {
		return errEnough
	}
	return nil
}

// lookBack provides the state of each object before its first printed event, if the bus still has
// that state. It requests the state from NATS, and reads Kafka from its beginning.
func (p *Printer) lookBack(ctx context.Context, bus Bus, o *publish.SubscribeOptions) {
	o.Tombstone = func(k event.Key, d publish.Delivery) { p.states.Forget(d.Cluster, k) }
	switch p.From {
	case publish.FromLast:
		p.states.Last = true
		return
	case publish.FromStart:
		return
	case publish.FromNow, publish.FromTime:
	}
	if p.SkipPast {
		return
	}
	if bus, ok := bus.(searchable); ok {
		p.states.Ask = func(e Event) *event.Message { return p.ask(ctx, bus, e) }
		o.Notify = func(err error) {
			p.noAnswer = p.noAnswer && err != nil
			p.Status.notify(err)
		}
		return
	}
	p.Status.Say("reading the earlier events of the %s first; --skip-past skips this", p.Status.Source)
	o.Past = func(m *event.Message, d publish.Delivery) {
		if e := (Event{Delivery: d, Message: m}); p.Filter.Match(e) {
			p.states.Keep(e)
		}
	}
}

// ask returns the event before e on the bus, or nil. An error can take seconds to arrive and can mean
// that a permission is missing. So ask sends no further request after an error until the subscription
// reconnects.
func (p *Printer) ask(ctx context.Context, bus searchable, e Event) *event.Message {
	if p.noAnswer {
		return nil
	}
	m, err := bus.Before(ctx, e.Subject, e.Position)
	if err != nil && ctx.Err() == nil {
		p.Status.Say("%v; the first update of each object has no diff", err)
		p.noAnswer = true
	}
	return m
}

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

// Bus is a bus that Printer reads. If it also has the method Before, as NATS does, Printer asks it
// for the event before the first one of an object.
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
	Since  time.Time // with publish.FromTime
	Count  int       // maximum number of events; 0 for no limit
	ToEnd  bool      // end when everything that the bus holds is printed; do not wait for a bus
	JSON   bool      // whole events as structured CloudEvents; else text
	Color  bool      // in text

	Diff     bool // show what each update changed
	SkipPast bool // do not read the state before the first event of an object

	states   *States // nil without Diff
	noAnswer bool    // the bus failed to return the event before another
	printed  int
	line     func(Event) ([]byte, error)
	diff     func(Event, Change) ([]byte, error)
}

// errEnough ends a subscription after Count events.
var errEnough = errors.New("enough")

// Run blocks until ctx is canceled, Count events are printed, nobody reads Out any longer, or the
// bus can't be read. subjectPrefix is the prefix of the subjects on NATS.
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

// isClosedPipe reports whether nobody reads the output any longer, such as after head.
func isClosedPipe(err error) bool {
	return slices.ContainsFunc([]error{syscall.EPIPE, io.ErrClosedPipe, os.ErrClosed}, func(closed error) bool { return errors.Is(err, closed) })
}

func (p *Printer) print(m *event.Message, d publish.Delivery) error {
	e := eventOf(m, d)
	if !p.Filter.Match(e) {
		return nil
	}
	line, err := p.show(e)
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

func (p *Printer) show(e Event) ([]byte, error) {
	if p.states == nil {
		return p.line(e)
	}
	return p.diff(e, p.states.Change(e))
}

func eventOf(m *event.Message, d publish.Delivery) Event {
	return Event{Message: m, Cluster: d.Cluster, Stored: d.Stored, Subject: d.Subject, Position: d.Position, log: d.Log}
}

// lookBack provides the state before the first event of each object, if the bus has it: tail asks
// NATS for it, and reads Kafka from its beginning.
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
	p.Status.Say("reading the earlier events of the %s first; --skip-past omits this", p.Status.Source)
	o.Past = func(m *event.Message, d publish.Delivery) {
		if e := eventOf(m, d); p.Filter.Match(e) {
			p.states.Keep(e)
		}
	}
}

// ask returns the event before e on the bus. After an error, which can take seconds and mean a
// missing permission, it does not ask again until the subscription was interrupted.
func (p *Printer) ask(ctx context.Context, bus searchable, e Event) *event.Message {
	if p.noAnswer {
		return nil
	}
	m, err := bus.Before(ctx, e.Subject, e.Position)
	if err != nil && ctx.Err() == nil {
		p.Status.Say("%v; first updates have no diff", err)
		p.noAnswer = true
	}
	return m
}

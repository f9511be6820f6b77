package main

import (
	"context"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/internal/tail"
)

// searchable is a bus that can tell what was before an event.
type searchable interface {
	Before(ctx context.Context, subject string, position uint64) (*event.Message, error)
}

var _ searchable = (*nats.Bus)(nil)

// remember sees to it that the states before the first events are known, so far as the
// bus has them.
func (t *tailing) remember(ctx context.Context, bus readable, o *publish.SubscribeOptions) {
	o.Tombstone = func(k event.Key, d publish.Delivery) { t.states.Forget(d.Cluster, k) }
	switch t.from {
	case publish.FromLast:
		t.states.Last = true
		return
	case publish.FromStart:
		return
	case publish.FromNow, publish.FromTime:
	}
	if t.skipPast {
		return
	}
	if bus, ok := bus.(searchable); ok {
		t.states.Ask = func(e tail.Event) *event.Message { return t.ask(ctx, bus, e) }
		o.Notify = func(err error) {
			t.noAnswer = t.noAnswer && err != nil
			t.status.notify(err)
		}
		return
	}
	t.status.say("reading first what the %s has from before; --skip-past does without", t.status.source)
	o.Past = func(m *event.Message, d publish.Delivery) {
		if e := eventOf(m, d); t.filter.Match(e) {
			t.states.Keep(e)
		}
	}
}

// ask asks no more after an error, which may have taken seconds and have as its reason a
// permission that lacks, until the bus is read anew.
func (t *tailing) ask(ctx context.Context, bus searchable, e tail.Event) *event.Message {
	if t.noAnswer {
		return nil
	}
	m, err := bus.Before(ctx, e.Subject, e.Position)
	if err != nil && ctx.Err() == nil {
		t.status.say("%v; first updates have no diff", err)
		t.noAnswer = true
	}
	return m
}

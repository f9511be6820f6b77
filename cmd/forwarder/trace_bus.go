package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/tail"
	"github.com/kuberelay/kuberelay/internal/trace"
)

// tracedBus is the last event of an object on the bus.
type tracedBus struct {
	reader readable // nil if it could not be opened
	bus    trace.Bus
	last   publish.Delivery
}

func (b tracedBus) close() {
	if b.reader != nil {
		_ = b.reader.Close() // nothing is in flight
	}
}

// traceBus reads the last event of an object of a cluster, "" for the only one on the bus. It waits
// neither for a bus that is unreachable nor for one that does not exist.
func traceBus(ctx context.Context, cfg config.Config, cluster string, k event.Key) tracedBus {
	b := tracedBus{bus: trace.Bus{State: trace.Unknown}}
	fail := func(err error) tracedBus {
		b.bus.Error = explainBus(cfg, err).Error()
		return b
	}
	selector, err := tail.ParseSelector(k.Resource + "." + cmp.Or(k.Group, "core"))
	if err != nil {
		return fail(err)
	}
	p := &tail.Present{Labels: labels.Everything(), Status: &tail.Status{W: io.Discard}}
	p.Filter = tail.Filter{Resources: []tail.Selector{selector}, Namespaces: []string{k.Namespace}, Names: []string{k.Name}}
	if cluster != "" {
		p.Filter.Clusters = []string{cluster}
	}
	cfg.Event.ClusterName = cluster
	b.reader, err = openReader(ctx, cfg, p.Status, nil)
	if b.bus.Source = p.Status.Source; err != nil {
		return fail(err)
	}
	if err := p.Read(ctx, b.reader, cfg.NATS.SubjectPrefix); err != nil {
		return fail(err)
	}
	if err := p.Err(); err != nil {
		return fail(err)
	}
	objects, removed := p.Objects()
	switch all := slices.Concat(objects, removed); len(all) {
	case 0:
		b.bus.State = trace.Absent
	case 1:
		b.show(all[0])
	default:
		return fail(errors.New("several clusters have it: set KUBERELAY_CLUSTER_NAME"))
	}
	return b
}

func (b *tracedBus) show(o tail.Object) {
	at := func(t time.Time) *time.Time {
		if t = t.UTC(); t.IsZero() {
			return nil
		}
		return &t
	}
	b.last = o.Stored
	b.bus.State, b.bus.Type = trace.Exists, o.Type.Short()
	switch o.Removed {
	case event.Deleted:
		b.bus.State = trace.Deleted
	case event.Deselected:
		b.bus.State = trace.Deselected
	}
	b.bus.UID, b.bus.Version, b.bus.Position, b.bus.Truncated = o.UID, o.Version, o.Stored.Place(), o.Truncated
	b.bus.Time, b.bus.Stored = at(o.Changed), at(o.Stored.Stored)
}

// progress returns how far a consumer has read, nil for the name "".
func (b tracedBus) progress(ctx context.Context, name string, timeout time.Duration) *trace.Consumer {
	if name == "" {
		return nil
	}
	c := &trace.Consumer{Name: name}
	if b.last.Position == 0 {
		c.Error = "the bus has no event of the object to compare with"
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p, err := b.reader.Progress(ctx, name, b.last.Log)
	if err != nil {
		c.Error = err.Error()
		return c
	}
	c.Event, c.Acknowledged, c.Delivered, c.Behind = int64(b.last.Position), p.Acknowledged, p.Delivered, p.Behind
	if b.last.Log != (publish.Log{}) {
		c.Event = publish.Offset(b.last.Position)
	}
	if !isConsumed(p.Filters, b.last.Subject) {
		c.Other = fmt.Sprintf("its filter %s does not match the subject %s", strings.Join(p.Filters, ", "), b.last.Subject)
	}
	return c
}

// isConsumed reports whether a consumer with these filters gets a subject.
func isConsumed(filters []string, subject string) bool {
	for _, filter := range filters {
		if matchesSubject(strings.Split(filter, "."), strings.Split(subject, ".")) {
			return true
		}
	}
	return len(filters) == 0
}

// matchesSubject reports whether the tokens of a NATS filter match those of a subject.
func matchesSubject(filter, subject []string) bool {
	for i, token := range filter {
		switch {
		case token == ">":
			return len(subject) > i
		case i >= len(subject) || token != "*" && token != subject[i]:
			return false
		}
	}
	return len(filter) == len(subject)
}

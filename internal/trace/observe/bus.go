package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/deadline"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/sinks/subscriber"
	"github.com/kuberelay/kuberelay/internal/tail"
	"github.com/kuberelay/kuberelay/internal/trace"
)

// tracedBus is the last event of an object on the bus.
type tracedBus struct {
	reader subscriber.Bus // nil if it could not be opened
	bus    trace.Bus
	last   publish.Delivery
}

func (b tracedBus) close() {
	if b.reader != nil {
		_ = b.reader.Close() // an error is harmless, because nothing is in flight
	}
}

// readBus reads the last event of an object. The timeout limits the time between two messages, not
// the whole read, because a read from Kafka covers the whole topic.
func readBus(ctx context.Context, cfg config.Config, cluster string, k event.Key, timeout time.Duration) tracedBus {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	reading := &longwork.Counter{}
	go func() {
		if reading.Stalls(ctx, timeout) {
			cancel(&deadline.Error{Timeout: timeout, Err: context.DeadlineExceeded})
		}
	}()
	b, err := deadline.Run(ctx, func(ctx context.Context) (tracedBus, error) { return traceBus(ctx, cfg, cluster, k, reading), nil })
	if err != nil {
		b.bus = trace.Bus{State: trace.Unknown, Error: "read the bus: " + err.Error()}
	}
	return b
}

// traceBus reads the last event of an object. If cluster is "", only one cluster on the bus may have
// the object. traceBus does not wait for an unreachable bus, or for a missing stream or topic.
func traceBus(ctx context.Context, cfg config.Config, cluster string, k event.Key, reading *longwork.Counter) tracedBus {
	b := tracedBus{bus: trace.Bus{State: trace.Unknown}}
	fail := func(err error) tracedBus {
		b.bus.Error = subscriber.Explain(cfg, err).Error()
		return b
	}
	selector, err := tail.ParseSelector(k.Resource + "." + cmp.Or(k.Group, "core"))
	if err != nil {
		return fail(err)
	}
	p := &tail.Present{Labels: labels.Everything(), Reading: reading, Status: &tail.Status{W: io.Discard}}
	p.Filter = tail.Filter{Resources: []tail.Selector{selector}, Namespaces: []string{k.Namespace}, Names: []string{k.Name}}
	if cluster != "" {
		p.Filter.Clusters = []string{cluster}
	}
	cfg.Event.ClusterName = cluster
	b.reader, err = subscriber.Open(ctx, cfg, p.Status, reading)
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

// progress returns how far a consumer has read the bus, or nil if name is "".
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
		c.Error = deadline.Explain(ctx, err, timeout).Error()
		return c
	}
	c.Event, c.Acknowledged, c.Delivered, c.Behind = int64(b.last.Position), p.Acknowledged, p.Delivered, p.Behind
	if b.last.Log != (publish.Log{}) {
		c.Event = publish.Offset(b.last.Position)
	}
	switch skips, sure := p.Start.Skips(b.last); {
	case !isConsumed(p.Filters, b.last.Subject):
		c.Other = fmt.Sprintf("its filter %s does not match the subject %s", strings.Join(p.Filters, ", "), b.last.Subject)
	case skips != "" && sure:
		c.Other = skips
	case skips != "":
		c.Error = skips
	}
	return c
}

// isConsumed reports whether a consumer with these filters receives the messages of a subject.
func isConsumed(filters []string, subject string) bool {
	return len(filters) == 0 || slices.ContainsFunc(filters, func(filter string) bool { return server.SubjectMatchesFilter(subject, filter) })
}

package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// feed reads the bus. It starts with the current state or at a place, and then reads each change.
// Only one goroutine may use it.
type feed struct {
	lw       *ListerWatcher
	from     *place                  // nil to start with the current state
	started  func() error            // called when the table has the current state
	emit     func(watch.Event) error // receives the changes after that
	resolved func() error            // called after the events of a change, and after each consistency point

	place
	decoder *decoder
	synced  bool   // the table has the current state
	waiting bool   // the feed has read everything, but the bus does not have all objects
	told    string // the reason for waiting in the last log message

	markers map[string]event.Type // type of the last snapshot marker, by cluster
	any     bool                  // the bus has an event of the resource
	hidden  map[event.Key]error   // objects whose last message is not an event
	failed  error                 // error in a callback that can't return an error
}

// errAgain ends a subscription, so that the feed reads again from the start. It means that the bus has
// all objects now, but did not have all of them when the list began.
var errAgain = errors.New("the bus has all objects")

var errClosed = errors.New("the bus is closed")

// run reads the bus until ctx ends, a function of the feed returns an error, or the bus loses messages.
func (f *feed) run(ctx context.Context) error {
	reader, release, err := f.lw.bus.reader(f.lw.gvr.GroupResource(), f.lw.opts.Cluster)
	if err != nil {
		return err
	}
	defer func() { _ = release() }()
	if f.decoder == nil {
		if f.decoder, err = newDecoder(f.lw.gvr, f.lw.opts.Object); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(f.lw.bus.open, func() { cancel(errClosed) })()
	for {
		err := reader.Subscribe(ctx, f.subscription(), f.take)
		if errors.Is(context.Cause(ctx), errClosed) {
			return errClosed
		}
		if !errors.Is(err, errAgain) {
			return named(err)
		}
	}
}

// subscription resets the feed. It returns the options to read the current state, or to continue at
// f.from.
func (f *feed) subscription() publish.SubscribeOptions {
	o := publish.SubscribeOptions{
		Filters: subjects(f.lw.bus.prefix, f.lw.opts.Cluster, f.lw.gvr.GroupResource(), f.lw.opts.Namespace), // Kafka ignores them
		From:    publish.FromLast, UntilLost: true, Foreign: f.foreign, Tombstone: f.tombstone,
	}
	if f.from != nil {
		o.From, o.Cursor = publish.FromCursor, f.from.cursor
		f.place, f.synced = *f.from, true
		f.cursor.Positions = maps.Clone(f.cursor.Positions) // the subscription reads the original map
		f.decoder = f.table.decoder
		return o
	}
	o.CaughtUp = f.caughtUp
	f.place = place{table: newTable(f.decoder, f.lw.opts.Labels), cursor: publish.Cursor{Positions: map[publish.Log]uint64{}}, points: points{}}
	f.table.cluster = f.lw.opts.Cluster
	f.waiting, f.any, f.markers, f.hidden = false, false, map[string]event.Type{}, map[event.Key]error{}
	return o
}

// caughtUp is called when the feed has read everything on the bus.
func (f *feed) caughtUp(c publish.Cursor) error {
	f.cursor.Stream, f.cursor.Topics = c.Stream, c.Topics
	for log, position := range c.Positions { // the feed may already have read later messages
		f.cursor.Positions[log] = max(position, f.cursor.Positions[log])
	}
	if f.failed != nil {
		return f.failed
	}
	for k, err := range f.hidden {
		return fmt.Errorf("the last message of %s is not an event: %w", k, err)
	}
	if what, cluster := f.missing(); what != "" {
		f.waiting = true
		if f.told != what {
			f.told = what
			f.lw.bus.log.Info("waiting", "reason", what, "resource", f.lw.gvr.GroupResource().String(), "cluster", cluster)
		}
		return nil
	}
	f.synced = true
	return f.started()
}

const (
	waitForAnything = "the bus has no events of the resource; the forwarder might not watch it"
	waitForSnapshot = "the first snapshot of the resource is not complete"
	waitForPoint    = "the bus lost messages, and has no consistency point of the resource yet"
)

// missing returns what a list waits for, and the cluster that it concerns. what is "" if the bus has
// all objects.
//
// The marker of the first snapshot shows that the bus has all objects. The marker is missing after
// compaction, and in a recreated stream or topic. A consistency point shows the same, because the
// forwarder publishes no point before it has published everything again. Some forwarders are configured
// to publish no points, so a list waits for a point only if this ListerWatcher has seen one.
func (f *feed) missing() (what, cluster string) {
	cluster = f.table.cluster
	if !f.any {
		return waitForAnything, cluster
	}
	completed := false
	for _, c := range slices.Sorted(maps.Keys(f.markers)) {
		switch {
		case cluster != "" && c != cluster: // a cluster without objects
		case f.markers[c] == event.SnapshotStarted:
			return waitForSnapshot, c
		default:
			completed = true
		}
	}
	if !completed && !f.points.has(cluster) && f.lw.hadPoints(cluster) {
		return waitForPoint, cluster
	}
	return "", ""
}

// take handles an event. The subscription calls it in the order of the bus.
func (f *feed) take(m *event.Message, d publish.Delivery) error {
	f.advance(d)
	if f.failed != nil {
		return f.failed
	}
	if m.Key.GroupResource() != f.lw.gvr.GroupResource() || f.lw.opts.Cluster != "" && d.Cluster != f.lw.opts.Cluster {
		return nil
	}
	f.any = true
	var err error
	switch {
	case m.Marker:
		err = f.marker(m, d)
	case f.lw.opts.Namespace == "" || m.Key.Namespace == f.lw.opts.Namespace:
		if err = f.object(m, d); err != nil {
			err = fmt.Errorf("apply the event of %s at %s: %w", m.Key, d.Place(), err)
		}
	}
	if err == nil && f.waiting {
		if what, _ := f.missing(); what == "" {
			return errAgain
		}
	}
	return err
}

// object handles an event of an object.
func (f *feed) object(m *event.Message, d publish.Delivery) error {
	c, err := changeOf(m)
	if err != nil {
		return err
	}
	if f.table.cluster == "" || f.table.cluster == d.Cluster {
		delete(f.hidden, m.Key)
	}
	if ours, err := f.table.claim(d.Cluster, c); err != nil || !ours {
		return err
	}
	return f.apply(c)
}

// changeOf parses an event of an object. The data of the change is valid as long as the message is.
func changeOf(m *event.Message) (change, error) {
	acked, err := event.AckedFrom(m.Attribute)
	if err != nil {
		return change{}, err
	}
	data, err := event.ObjectIn(m.Attribute, m.Data)
	return change{
		key: m.Key, removed: acked.Deleted, version: acked.ResourceVersion, data: data,
		identity: m.Attribute("finalstateunknown") == "true", truncated: m.Attribute("truncated") == "true",
	}, err
}

func (f *feed) apply(c change) error {
	if !f.synced {
		return f.table.add(c)
	}
	events, err := f.table.apply(c)
	for _, e := range events {
		if err := f.emit(e); err != nil {
			return err
		}
	}
	if err != nil || len(events) == 0 {
		return err
	}
	return f.resolved()
}

// marker handles a snapshot marker or a consistency point.
func (f *feed) marker(m *event.Message, d publish.Delivery) error {
	switch t := event.Type(m.Attribute("type")); t {
	case event.SnapshotStarted, event.SnapshotCompleted:
		if !f.synced {
			f.markers[d.Cluster] = t
		}
	case event.Resolved:
		if p, ok := pointOf(m); ok {
			f.points.set(d.Cluster, d.Log, p)
			f.lw.sawPoint(d.Cluster)
		}
		if f.synced {
			return f.resolved()
		}
	}
	return nil
}

// tombstone handles a record without a value, which means that the bus no longer has an event of the
// object.
func (f *feed) tombstone(k event.Key, d publish.Delivery) {
	f.advance(d)
	if !f.selects(k, d.Cluster) {
		return
	}
	delete(f.hidden, k)
	if f.failed == nil {
		f.failed = f.apply(change{key: k, removed: true})
	}
}

// foreign handles a message that is not an event. While the feed reads the current state, it records
// the message, and caughtUp returns an error if the message is still the last one of its object. After
// that, the feed ignores such messages: the last event of the object stays valid until the forwarder
// publishes the object again.
func (f *feed) foreign(d publish.Delivery, err error) {
	f.advance(d)
	if f.synced {
		return
	}
	if cluster, k, ok := d.Object(); ok && f.selects(k, cluster) {
		f.hidden[k] = err
	}
}

func (f *feed) selects(k event.Key, cluster string) bool {
	return k.GroupResource() == f.lw.gvr.GroupResource() && (f.table.cluster == "" || cluster == f.table.cluster) &&
		(f.lw.opts.Namespace == "" || k.Namespace == f.lw.opts.Namespace)
}

func (f *feed) advance(d publish.Delivery) {
	f.cursor.Positions[d.Log] = d.Position
}

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

// feed reads the bus: the present state first, or what follows a place, and then each change.
// Only one goroutine uses it.
type feed struct {
	lw       *ListerWatcher
	from     *place                  // nil for the present state
	started  func() error            // called when the table has the present state
	emit     func(watch.Event) error // gets the changes after that
	resolved func() error            // called after each of them, and after each consistency point

	place
	decoder *decoder
	synced  bool   // the table has the present state
	waiting bool   // everything was read, but the bus does not have all objects
	told    string // what the log last said that the list waits for

	markers map[string]event.Type // type of the last snapshot marker, by cluster
	any     bool                  // the bus has something of the resource
	hidden  map[event.Key]error   // objects whose last message is not an event
	failed  error                 // of a callback that cannot return one
}

// errAgain ends a subscription if the bus got all objects after the list began.
var errAgain = errors.New("the bus has all objects")

var errClosed = errors.New("the bus is closed")

// run reads until ctx ends, a function of the feed returns an error, or the bus lost messages.
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

// subscription returns the options to start over, or to continue at f.from.
func (f *feed) subscription() publish.SubscribeOptions {
	o := publish.SubscribeOptions{From: publish.FromLast, UntilLost: true, Foreign: f.foreign, Tombstone: f.tombstone}
	if f.lw.bus.filters != nil {
		o.Filters = f.lw.bus.filters(f.lw.gvr.GroupResource(), f.lw.opts.Cluster, f.lw.opts.Namespace)
	}
	if f.from != nil {
		o.From, o.Cursor = publish.FromCursor, f.from.cursor
		f.place, f.synced = *f.from, true
		f.cursor.Positions = maps.Clone(f.cursor.Positions) // the subscription reads the other one
		f.decoder = f.table.decoder
		return o
	}
	o.CaughtUp = f.caughtUp
	f.place = place{table: newTable(f.decoder, f.lw.opts.Labels), cursor: publish.Cursor{Positions: map[publish.Log]uint64{}}, points: points{}}
	f.table.cluster = f.lw.opts.Cluster
	f.waiting, f.any, f.markers, f.hidden = false, false, map[string]event.Type{}, map[event.Key]error{}
	return o
}

// caughtUp is called when everything on the bus was read.
func (f *feed) caughtUp(c publish.Cursor) error {
	f.cursor.Stream = c.Stream
	for log, position := range c.Positions { // others can have been delivered since
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
	waitForAnything = "the bus has nothing of the resource; the forwarder may not watch it"
	waitForSnapshot = "the first snapshot of the resource is not complete"
	waitForPoint    = "the bus lost messages, and has no consistency point of the resource yet"
)

// missing returns what a list waits for, and of which cluster. It is "" if the bus has all
// objects. Without a marker of the first snapshot, which compaction removes and a recreated
// stream or topic does not have, a consistency point says so: the forwarder publishes none
// before it has published everything again. A forwarder that publishes no points gives no such
// sign, so a list waits for one only if this ListerWatcher has seen a point before.
func (f *feed) missing() (what, cluster string) {
	cluster = f.table.cluster
	if !f.any {
		return waitForAnything, cluster
	}
	completed := false
	for _, c := range slices.Sorted(maps.Keys(f.markers)) {
		switch {
		case cluster != "" && c != cluster: // it has no objects
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

func (f *feed) complete() bool {
	what, _ := f.missing()
	return what == ""
}

// take handles a message, in the order of the bus.
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
	if err == nil && f.waiting && f.complete() {
		return errAgain
	}
	return err
}

// object takes an event of an object.
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

// changeOf reads an event of an object. Data is valid as long as the message.
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

// tombstone handles a record without a value: the bus has no event of the object any more.
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

// foreign handles a message that is not an event. After the present state was read, the last event
// of the object stays valid until the forwarder publishes the object again.
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

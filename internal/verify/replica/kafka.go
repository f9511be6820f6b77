package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	"github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// kafkaSource reads topics on demand. Each read goes to the ends of the partitions.
type kafkaSource struct {
	*reader.Bus
	place
	scan *reader.Scan
}

var _ source = kafkaSource{}

// afterCompaction is the depth of a Kafka history. It is 1, because compaction can remove all
// events of an object except the last one.
const afterCompaction = 1

// OpenKafka opens the topics.
func OpenKafka(ro reader.Options, o Options) (*Follower, error) {
	ro.Cluster = "" // this package filters the records of the cluster
	bus, err := reader.Open(ro)
	if err != nil {
		return nil, err
	}
	at := place{Cluster: o.Cluster, Records: true, Topic: ro.Topic}
	f := newFollower(kafkaSource{bus, at, bus.Scan()}, at, o.Form, afterCompaction, o.Retention)
	f.history.forgets, f.history.repeats = true, o.Repeats
	f.history.show = func(position uint64) string {
		return fmt.Sprintf("%d:%d", publish.Partition(position), publish.Offset(position))
	}
	return f, nil
}

// maxKey is the length in bytes of the longest key that a forwarder writes. A record of a few
// kilobytes on the wire can have a key of many megabytes, and keys stay in memory.
const maxKey = 4096

// isOurs reports whether a record belongs to the cluster.
func (s kafkaSource) isOurs(r reader.Record) bool {
	return strings.HasPrefix(string(r.Key), wire.KeyPrefix(s.Cluster))
}

// read returns a function that parses the event in a record.
func read(r reader.Record) func() (wire.Event, error) {
	return func() (wire.Event, error) {
		headers := make([]wire.Header, len(r.Headers))
		for i, h := range r.Headers {
			headers[i] = wire.Header(h)
		}
		switch a, err := wire.ParseKey(string(r.Key)); {
		case r.Value != nil:
			return wire.FromKafka(headers, r.Value)
		case err == nil && a.Kind != wire.OfObject:
			return wire.ControlFromKafka(headers)
		}
		return wire.Event{}, errors.New("it has no value")
	}
}

// lasts yields the position of each object's last record if that record is an event.
func (s kafkaSource) lasts(ctx context.Context, each func(event.Key, uint64)) error {
	lasts := map[event.Key]uint64{}
	err := s.Scan().NextRaw(ctx, func(r reader.Record, d publish.Delivery) error {
		if !s.isOurs(r) || len(r.Key) > maxKey {
			return nil
		}
		a, err := s.address(d)
		if err != nil || a.Kind != wire.OfObject {
			return nil //nolint:nilerror // the key is checked when the record is read
		}
		if _, err := read(r)(); err != nil {
			delete(lasts, event.Key(a.Object))
		} else {
			lasts[event.Key(a.Object)] = d.Position
		}
		return nil
	}, func(publish.Delivery, error) {})
	switch {
	case err == nil:
		for k, position := range lasts {
			each(k, position)
		}
		return nil
	case ctx.Err() != nil, errors.Is(err, publish.ErrMissing), errors.Is(err, reader.ErrMisconfigured), errors.Is(err, reader.ErrChanged):
		return fmt.Errorf("read the bus: %w", err)
	}
	return fmt.Errorf("open the bus: %w: %w", publish.ErrUnreachable, err) // this is the first request to the bus
}

func (s kafkaSource) run(context.Context, *Follower) {}

func (s kafkaSource) catchUp(ctx context.Context, f *Follower) error {
	f.askWith(ctx)
	err := s.scan.NextRaw(ctx, func(r reader.Record, d publish.Delivery) error {
		switch {
		case !s.isOurs(r):
			return nil
		case len(r.Key) > maxKey:
			f.takeRefused(d, fmt.Errorf("its key has %d bytes, want at most %d", len(r.Key), maxKey))
			return nil
		}
		if a, err := s.address(d); err == nil && a.Kind == wire.OfObject && r.Value == nil {
			f.takeTombstone(event.Key(a.Object), d)
			return nil
		}
		return f.take(d, read(r))
	}, f.takeRefused)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = f.ended
	}
	if err != nil {
		return fmt.Errorf("read the bus: %w", err)
	}
	return nil
}

func (s kafkaSource) EventAt(ctx context.Context, k event.Key, position uint64) (e wire.Event, found bool, err error) {
	r, found, err := s.RawAt(ctx, wire.Topic(s.Topic, wire.Object(k)), position)
	if err != nil || !found || r.Value == nil {
		return wire.Event{}, false, err
	}
	a, err := s.address(publish.Delivery{Subject: string(r.Key), Log: publish.Log{Topic: wire.Topic(s.Topic, wire.Object(k))}})
	if err != nil || a.Kind != wire.OfObject || event.Key(a.Object) != k {
		return wire.Event{}, false, nil //nolint:nilerror // another object's: reported when it was read
	}
	e, _ = read(r)() // e has no attributes if the record isn't an event
	return e, true, nil
}

// catchUpWith always returns false, because waiting for more messages does not excuse a doubt: on
// Kafka, a doubt is excused at once or never.
func (s kafkaSource) catchUpWith(ctx context.Context, f *Follower, _ event.Key) (more bool, err error) {
	return false, s.catchUp(ctx, f)
}

// Has always returns true: a key that was read keeps at least a tombstone for some time, which
// catchUp reads.
func (s kafkaSource) Has(context.Context, event.Key) (bool, error) { return true, nil }

// partitions omits the partitions that were added since the last catchUp.
func (s kafkaSource) partitions(gr schema.GroupResource) (all []int) {
	topic := wire.Topic(s.Topic, wire.Object{Group: gr.Group, Resource: gr.Resource})
	for log := range s.scan.Ends() {
		if log.Topic == topic {
			all = append(all, log.Partition)
		}
	}
	return all
}

// FormatPositions adds the end of each partition to the report, and splits each position of a problem
// into partition and offset.
func (s kafkaSource) FormatPositions(r *report.Report) {
	for log, end := range s.scan.Ends() {
		r.Partitions = append(r.Partitions, report.Partition{Topic: log.Topic, Partition: log.Partition, Offset: publish.Offset(end) + 1})
	}
	slices.SortFunc(r.Partitions, func(a, b report.Partition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for i := range r.Problems {
		p := &r.Problems[i]
		if p.Position != 0 {
			partition := publish.Partition(p.Position)
			p.Partition, p.Position = &partition, uint64(publish.Offset(p.Position))
		}
	}
}

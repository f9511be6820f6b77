package simulate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// kafka is a forwarder's access to the topics, through its session.
type kafka struct{ p *process }

var _ client = kafka{}

// request sends a request to the brokers. It fails if the session ends meanwhile.
func (s *session) request(f func() error) error {
	err := s.p.busRequest(f)
	if s.p.session != s {
		return errReplaced
	}
	return s.failed(err)
}

// Load implements [checkpoint.Source].
func (k kafka) Load(_ context.Context, yield func(event.Key, event.Acked) error) error {
	s := k.p.session
	if s == nil {
		return errOffline
	}
	if loaded := s.loaded; loaded != nil {
		s.loaded = nil
		for _, key := range slices.Sorted(maps.Keys(loaded)) {
			if err := yield(keyOf(objectOfKey(key)), loaded[key].Acked()); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.check(true); err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return err
	}
	if s.p.session != s {
		return errReplaced
	}
	for _, l := range k.p.world.brokers.checkpoint {
		var entries []takeover.Write
		err := s.request(func() error {
			for _, r := range l.records {
				if !r.removed && (r.is.Kind == record.OfEvent || r.is.Kind == record.Removed) && r.is.Entry.Type == "" {
					entries = append(entries, r.is)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := s.take(e, yield); err != nil {
				return err
			}
		}
	}
	return s.check(false)
}

// take yields an entry of the checkpoint topic.
func (s *session) take(e takeover.Write, yield func(event.Key, event.Acked) error) error {
	object := objectOfKey(e.Key)
	if object == none {
		return nil
	}
	last, acked := s.last[object], event.Acked{}
	switch {
	case e.Kind == record.Removed && last != 0:
		return nil
	case e.Kind == record.OfEvent:
		acked = e.Entry.Acked()
		if last != 0 {
			acked.Position = last
		}
	}
	return yield(keyOf(object), acked)
}

// check ends the session if a partition no longer has the session's marker or its last record. It
// checks the event topic only if all is true.
func (s *session) check(all bool) error {
	b := &s.p.world.brokers
	for n, l := range b.checkpoint {
		if err := check(s, l, s.checkpoint[n]); err != nil {
			return err
		}
	}
	for n, l := range b.events {
		if !all {
			break
		}
		if err := check(s, l, s.events[n]); err != nil {
			return err
		}
	}
	return nil
}

func check[R any](s *session, l *topicLog[R], at *writing) error {
	last, marker := at.last, at.marker.Offset
	return s.request(func() error {
		for _, offset := range []int64{last, marker} {
			switch {
			case offset >= int64(len(l.records)):
				return errDataLost
			case l.records[offset].epoch != s.epoch:
				return errDataLost
			}
		}
		return nil
	})
}

// At implements [forward.History].
func (k kafka) At(_ context.Context, key event.Key, position uint64) (is publish.Stored, err error) {
	if position == 0 {
		return is, nil
	}
	err = k.p.busRequest(func() error {
		if m := k.p.world.brokers.at(position); m != nil && m.Subject == subjectOf(objectOf(key)) {
			is, _ = m.Stored()
		}
		return nil
	})
	return is, err
}

// Purge implements [checkpoint.Purger].
func (k kafka) Purge(_ context.Context, key event.Key, upTo uint64) error {
	s, object := k.p.session, objectOf(key)
	if s == nil {
		return errOffline
	}
	partitionKey := event.PartitionKey(clusterName, key)
	n := binding.Partition([]byte(partitionKey), len(s.events))
	switch {
	case s.busy[object] || s.last[object] != upTo:
		return nil
	case s.events[n].newest == publish.Offset(upTo):
		return fmt.Errorf("purge %s: %w", key, event.ErrNewest)
	}
	k.p.world.oracle.purged(object, upTo)
	s.write(takeover.Write{Partition: takeover.Home(n, s.records), Key: partitionKey, Checkpoint: record.Checkpoint{Kind: record.Removed}})
	delete(s.last, object)
	return nil
}

// publishPoint appends a point to every partition.
func (k kafka) publishPoint(_ natsgo.Header, _ []byte, stored func()) error {
	p, s := k.p, k.p.session
	if s == nil {
		return errOffline
	}
	for n, l := range p.world.brokers.events {
		for p.world.hasFlight(s, n) { // the point must follow the events that the session sent before
			if err := s.request(func() error { return nil }); err != nil {
				return err
			}
		}
		if err := produce(s, l, s.events[n], logged{}); err != nil {
			return err
		}
		if p.session != s {
			return errReplaced
		}
		if n == 0 {
			stored()
		}
	}
	return nil
}

// hasFlight reports whether a session has an event in flight in a partition.
func (w *world) hasFlight(s *session, partition int) bool {
	return slices.ContainsFunc(w.flights, func(f *flight) bool { return f.session == s && f.sender != nil && f.partition() == partition })
}

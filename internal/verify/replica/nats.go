package replica

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// stream reads raw messages.
type stream interface {
	// SubscribeRaw delivers every message.
	SubscribeRaw(ctx context.Context, o publish.SubscribeOptions, yield func(*natsreader.Raw) error) error
	// LoadRaw, LastRaw, and RawAt return the current content of the stream: the last message of
	// each subject, the last of one subject, and the message at one position.
	LoadRaw(ctx context.Context, filter string, yield func(*natsreader.Raw) error) error
	LastRaw(ctx context.Context, subject string) (*natsreader.Raw, error)
	RawAt(ctx context.Context, position uint64) (*natsreader.Raw, error)
	Close() error
}

var _ stream = (*natsreader.Bus)(nil)

const (
	busPatience     = 15 * time.Second // maximum wait for a message before reading fails
	recheckInterval = time.Second      // time without a message after which the end of the stream is read again
)

// natsSource reads a stream, which pushes new messages.
type natsSource struct {
	stream
	place
}

var _ source = natsSource{}

// connectTimeout bounds the attempts to reach a server.
const connectTimeout = 5 * time.Second

// OpenNATS opens a stream that keeps history messages of each object. It doesn't wait for a
// stream that doesn't exist, and waits at most connectTimeout for a server.
func OpenNATS(ctx context.Context, no natsreader.Options, history int, o Options) (*Follower, error) {
	no.Cluster = o.Cluster
	bus, err := natsreader.Connect(ctx, no)
	if err != nil {
		return nil, err
	}
	if err = awaitReady(ctx, bus); err != nil {
		return nil, errors.Join(fmt.Errorf("open the bus: %w", err), bus.Close())
	}
	at := place{Prefix: no.SubjectPrefix, Cluster: o.Cluster}
	return newFollower(natsSource{bus, at}, at, o.Form, history, o.Retention), nil
}

func awaitReady(ctx context.Context, bus *natsreader.Bus) error {
	err := bus.Ready()
	if err == nil || errors.Is(err, natsreader.ErrStreamMissing) {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err = bus.Wait(waiting)
	if waiting.Err() == nil || ctx.Err() != nil {
		return err
	}
	if err = bus.Ready(); err == nil || errors.Is(err, natsreader.ErrStreamMissing) || errors.Is(err, natsreader.ErrMisconfigured) {
		return err
	}
	return fmt.Errorf("%w: %w", publish.ErrUnreachable, err)
}

func (s natsSource) filter() string { return wire.ClusterFilter(s.Prefix, s.Cluster) }

func (s natsSource) run(ctx context.Context, f *Follower) {
	f.askWith(ctx)
	err := s.SubscribeRaw(ctx, publish.SubscribeOptions{
		Filters:   []string{s.filter()},
		From:      publish.FromStart,
		UntilLost: true,
		Notify:    func(err error) { f.change(func() { f.trouble = err }) },
	}, func(m *natsreader.Raw) error {
		return f.take(publish.Delivery{Subject: m.Subject, Position: m.Sequence, Stored: m.Time},
			func() (wire.Event, error) { return wire.FromNATS(m.Headers, m.Data) })
	})
	if errors.Is(err, publish.ErrLost) {
		err = ErrChanged
	}
	f.change(func() {
		if f.ended == nil {
			f.ended = err
		}
	})
}

// lasts yields the position of each object's last message if that message is an event.
func (s natsSource) lasts(ctx context.Context, each func(event.Key, uint64)) error {
	_, err := s.end(ctx, each)
	return err
}

// end returns the position of the last message. If each is not nil, end calls it for every object whose
// last message is an event, with the position of that message.
func (s natsSource) end(ctx context.Context, each func(event.Key, uint64)) (end uint64, err error) {
	err = s.LoadRaw(ctx, s.filter(), func(m *natsreader.Raw) error {
		end = max(end, m.Sequence)
		a, err := s.address(publish.Delivery{Subject: m.Subject})
		if each != nil && err == nil && a.Kind == wire.OfObject && wire.IsEventOfObject(m.Headers) {
			each(event.Key(a.Object), m.Sequence)
		}
		return nil //nolint:nilerror // the subject is checked when the message is read
	})
	if err != nil {
		return 0, fmt.Errorf("read the bus: %w", err)
	}
	return end, nil
}

func (s natsSource) EventAt(ctx context.Context, k event.Key, position uint64) (e wire.Event, found bool, err error) {
	m, err := s.RawAt(ctx, position)
	if err != nil || m == nil {
		return wire.Event{}, false, err
	}
	if want := wire.Subject(s.Prefix, s.Cluster, wire.Object(k)); m.Subject != want {
		return wire.Event{}, false, fmt.Errorf("read the event of %s: the message at %d has the subject %s", k, position, m.Subject)
	}
	e, _ = wire.FromNATS(m.Headers, m.Data) // e has no attributes if the message isn't an event
	return e, true, nil
}

func (s natsSource) Has(ctx context.Context, k event.Key) (bool, error) {
	last, err := s.last(ctx, k)
	return last != 0, err
}

// last returns the position of the last message of an object on the stream, or 0 if there is none.
func (s natsSource) last(ctx context.Context, k event.Key) (uint64, error) {
	m, err := s.LastRaw(ctx, wire.Subject(s.Prefix, s.Cluster, wire.Object(k)))
	switch {
	case err != nil:
		return 0, fmt.Errorf("read the bus: %w", err)
	case m == nil:
		return 0, nil
	}
	return m.Sequence, nil
}

func (s natsSource) catchUp(ctx context.Context, f *Follower) error {
	_, err := s.await(ctx, f, func(ctx context.Context) (uint64, error) { return s.end(ctx, nil) })
	return err
}

// catchUpWith is cheaper than catchUp, because it waits only for the messages of one object.
func (s natsSource) catchUpWith(ctx context.Context, f *Follower, k event.Key) (more bool, err error) {
	return s.await(ctx, f, func(ctx context.Context) (uint64, error) { return s.last(ctx, k) })
}

// await waits until the follower has read up to the position that end returns, and reports whether
// it had to wait. The message at that position might be removed from the bus before it is read, so
// await calls end again if no message arrives within recheckInterval. It waits for the lowest
// position that end has returned, because the end of a busy stream can move faster than the
// follower reads.
func (s natsSource) await(ctx context.Context, f *Follower, end func(context.Context) (uint64, error)) (waited bool, err error) {
	goal, progress, since := uint64(math.MaxUint64), uint64(0), time.Now()
	for {
		is, err := end(ctx)
		if err != nil {
			return waited, err
		}
		goal = min(goal, is)
		again, before := time.After(recheckInterval), progress
		for waiting := true; waiting; {
			f.mu.Lock()
			ended, position, moved := f.ended, f.read[publish.Log{}], f.moved
			f.mu.Unlock()
			switch {
			case ended != nil:
				return waited, fmt.Errorf("read the bus: %w", ended)
			case position >= goal:
				return waited, nil
			case position != progress:
				progress, since = position, time.Now()
			}
			waited = true
			select {
			case <-moved:
			case <-again:
				waiting = progress != before
				again, before = time.After(recheckInterval), progress
			case <-ctx.Done():
				return waited, ctx.Err()
			}
		}
		if time.Since(since) > busPatience {
			return waited, f.silence()
		}
	}
}

func (f *Follower) silence() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble != nil {
		return fmt.Errorf("read the bus: %w", f.trouble)
	}
	return fmt.Errorf("read the bus: no message within %s after position %d", busPatience, f.read[publish.Log{}])
}

func (s natsSource) partitions(schema.GroupResource) []int { return []int{0} }

func (s natsSource) FormatPositions(*report.Report) {}

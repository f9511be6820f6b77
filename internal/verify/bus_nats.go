package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
)

// stream is what is asked of the bus.
type stream interface {
	// Subscribe brings every message.
	Subscribe(ctx context.Context, o publish.SubscribeOptions, yield func(*event.Message, publish.Delivery) error) error
	// Load, Last and At say what the stream holds at this moment: of all objects,
	// of one, and at one position.
	Load(ctx context.Context, yield func(event.Key, event.Acked) error) error
	Last(ctx context.Context, k event.Key) (publish.Stored, error)
	At(ctx context.Context, k event.Key, position uint64) (publish.Stored, error)
	Close() error
}

var _ stream = (*nats.Bus)(nil)

const (
	busPatience = 15 * time.Second // without a message, before it is held to be unreachable
	askAgain    = time.Second      // what the end of the stream is, while waiting for it
)

// natsSource is a stream, which brings what comes by itself.
type natsSource struct{ stream }

var _ source = natsSource{}

// connectPatience is how long a server that cannot be reached is tried.
const connectPatience = 5 * time.Second

// openStream does not wait for a stream that does not exist, nor for long for a
// server.
func openStream(ctx context.Context, o Options, cluster string, form form) (*follower, error) {
	o.NATS.Cluster = cluster
	bus, err := nats.Connect(ctx, o.NATS)
	if err != nil {
		return nil, err
	}
	if err = awaitReady(ctx, bus); err != nil {
		return nil, errors.Join(fmt.Errorf("open the bus: %w", err), bus.Close())
	}
	at := place{Prefix: o.NATS.SubjectPrefix, Cluster: cluster}
	return newFollower(natsSource{bus}, at, form, o.NATS.History, o.DeleteRetention), nil
}

func awaitReady(ctx context.Context, bus *nats.Bus) error {
	err := bus.Ready()
	if err == nil || errors.Is(err, nats.ErrStreamMissing) {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	err = bus.Wait(waiting)
	if waiting.Err() == nil || ctx.Err() != nil {
		return err
	}
	if err = bus.Ready(); err == nil || errors.Is(err, nats.ErrStreamMissing) || errors.Is(err, nats.ErrMisconfigured) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

func (s natsSource) run(ctx context.Context, f *follower) {
	f.askWith(ctx)
	err := s.Subscribe(ctx, publish.SubscribeOptions{
		From:    publish.FromStart,
		Notify:  func(err error) { f.change(func() { f.trouble = err }) },
		Foreign: f.takeForeign,
	}, f.take)
	f.change(func() {
		if f.ended == nil {
			f.ended = err
		}
	})
}

// lasts leaves out the objects whose last message is no event.
func (s natsSource) lasts(ctx context.Context, each func(event.Key, uint64)) error {
	_, err := s.end(ctx, each)
	return err
}

// end asks for the position of the last message of any object.
func (s natsSource) end(ctx context.Context, each func(event.Key, uint64)) (end uint64, err error) {
	err = s.Load(ctx, func(k event.Key, a event.Acked) error {
		end = max(end, a.Position)
		if each != nil && a.UID != "" {
			each(k, a.Position)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read the bus: %w", err)
	}
	return end, nil
}

func (s natsSource) catchUp(ctx context.Context, f *follower) error {
	return s.await(ctx, f, func(ctx context.Context) (func() bool, error) {
		end, err := s.end(ctx, nil)
		return func() bool { return f.read[publish.Log{}] >= end }, err
	})
}

// catchUpWith is cheaper than catchUp.
func (s natsSource) catchUpWith(ctx context.Context, f *follower, k event.Key) (more bool, err error) {
	return more, s.await(ctx, f, func(ctx context.Context) (func() bool, error) {
		last, err := s.Last(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("read the bus: %w", err)
		}
		return func() bool {
			done := f.read[publish.Log{}] >= last.Acked.Position
			more = more || !done
			return done
		}, nil
	})
}

// await waits for what aim says. What is waited for may be removed from the bus
// before it is read, so aim is asked again from time to time.
func (s natsSource) await(ctx context.Context, f *follower, aim func(context.Context) (reached func() bool, err error)) error {
	progress, since := uint64(0), time.Now()
	for {
		reached, err := aim(ctx)
		if err != nil {
			return err
		}
		again := time.NewTimer(askAgain)
		for waiting := true; waiting; {
			f.mu.Lock()
			done, ended, position, moved := reached(), f.ended, f.read[publish.Log{}], f.moved
			f.mu.Unlock()
			switch {
			case ended != nil:
				again.Stop()
				return fmt.Errorf("read the bus: %w", ended)
			case done:
				again.Stop()
				return nil
			case position != progress:
				progress, since = position, time.Now()
			}
			select {
			case <-moved:
			case <-again.C:
				waiting = false
			case <-ctx.Done():
				again.Stop()
				return ctx.Err()
			}
		}
		if time.Since(since) > busPatience {
			return f.silence()
		}
	}
}

func (f *follower) silence() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble != nil {
		return fmt.Errorf("read the bus: %w", f.trouble)
	}
	return fmt.Errorf("read the bus: nothing came for %s after position %d", busPatience, f.read[publish.Log{}])
}

func (s natsSource) report(*Report) {}

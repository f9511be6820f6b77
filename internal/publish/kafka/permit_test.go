package kafka

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// permit implements [Options.Permit].
type permit struct{ refused atomic.Bool }

var errNoPermit = errors.New("another leads")

func (p *permit) ask() error {
	if p.refused.Load() {
		return errNoPermit
	}
	return nil
}

func wants(got, want error) error {
	if errors.Is(got, want) {
		return nil
	}
	return fmt.Errorf("got %w", errors.Join(got, errors.New("want "+want.Error())))
}

// TestWithoutAPermitNobodyIsReplaced verifies that a bus without a permit does not take over.
// Otherwise, a process that was suspended before its takeover would lock out the current writer.
func TestWithoutAPermitNobodyIsReplaced(t *testing.T) {
	w := newWriters(t, 2)
	present := w.open()
	position := w.mustPublish(present, w.message("web", 1, 0))

	p := &permit{}
	p.refused.Store(true)
	w.opts.Permit = p.ask
	sleeper := openBus(t, w.opts)
	await(t, "Ready says why the bus does not write", func() error { return wants(sleeper.Ready(), errNoPermit) })
	w.mustPublish(present, w.message("web", 2, position))

	p.refused.Store(false)
	w.ready(sleeper)
	await(t, "the other one is replaced", func() error { return wants(present.Ready(), publish.ErrGone) })
}

// TestWithoutAPermitNothingIsSent verifies that a bus sends nothing without a permit, and continues
// when it has a permit again.
func TestWithoutAPermitNothingIsSent(t *testing.T) {
	w := newWriters(t, 2)
	p := &permit{}
	w.opts.Permit = p.ask
	bus := w.open()
	position := w.mustPublish(bus, w.message("web", 1, 0))
	p.refused.Store(true)
	if _, err := w.publish(bus, w.message("web", 2, position)); err == nil {
		t.Error("the event was published")
	}
	w.wantNoRepeat(1)
	p.refused.Store(false)
	await(t, "the event is published", func() error { // the session that was refused may not have ended yet
		_, err := w.publish(bus, w.message("web", 2, position))
		return err
	})
	w.wantNoRepeat(2)
}

// TestWithoutAPermitNoTopicIsMade verifies that a bus without a permit creates no topic, not even
// to check the owner of the cluster name.
func TestWithoutAPermitNoTopicIsMade(t *testing.T) {
	w := newWriters(t, 1)
	p := &permit{}
	p.refused.Store(true)
	w.opts.Permit, w.opts.Admit = p.ask, func(event.Claim) error { return nil }
	b := openBus(t, w.opts)
	await(t, "Ready says why the bus does not write", func() error { return wants(b.Ready(), errNoPermit) })
	if made := b.PossibleLosses(); made != 0 {
		t.Errorf("%d topics were created", made)
	}
	p.refused.Store(false)
	w.ready(b)
	if made := b.PossibleLosses(); made != 2 {
		t.Errorf("%d topics were created, want the event topic and the checkpoint topic", made)
	}
}

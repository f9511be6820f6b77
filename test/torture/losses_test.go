package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// loss is the number of objects that a forwarder has reported as lost by the bus since its last start.
type loss struct {
	node   *node
	starts int
	count  float64
}

const lostTotal = "kuberelay_bus_lost_total"

// losses returns the losses that the running forwarders have reported.
func (w *world) losses(ctx context.Context) (all []loss) {
	for _, n := range w.nodes {
		asking, cancel := context.WithTimeout(ctx, opTimeout)
		count, err := n.Metric(asking, lostTotal)
		cancel()
		if err == nil {
			starts, _ := n.count()
			all = append(all, loss{n, starts, count})
		}
	}
	return all
}

// mustTell reports whether a forwarder that knows these messages must report a loss if the stream
// continues at sequence end: the bus lost the last message of an object that existed.
func mustTell(known []harness.Received, end uint64) bool {
	last := map[string]harness.Received{}
	for _, m := range known {
		if !isMarker(m) && m.Invalid == nil {
			last[m.Subject] = m
		}
	}
	for _, m := range last {
		if m.Sequence >= end && !gone(m) {
			return true
		}
	}
	return false
}

// awaitTold waits until a forwarder has reported more losses than before. It fails with a [wrongError]
// if none does. A forwarder that was restarted needn't report the loss, because the bus is its only
// memory.
func (w *world) awaitTold(ctx context.Context, before []loss) error {
	if len(before) == 0 {
		return nil
	}
	wait := limit
	if w.planted() {
		wait = buggyReady
	}
	err := poll.Until(ctx, wait, "a forwarder reports that the bus has lost events", func(ctx context.Context) error {
		now := w.losses(ctx)
		for _, was := range before {
			if starts, _ := was.node.count(); starts != was.starts {
				return nil
			}
			for _, is := range now {
				if is.node == was.node && is.count > was.count {
					return nil
				}
			}
		}
		return errors.New("none does")
	})
	if err != nil {
		return &wrongError{[]string{err.Error()}}
	}
	return nil
}

// falseLosses returns the forwarders that reported losses although the bus has lost nothing. Such a
// forwarder treats an event as acknowledged too early, then finds that the event is missing, and
// publishes it again.
func (w *world) falseLosses(ctx context.Context, all []harness.Received) (problems []string) {
	recreated := slices.ContainsFunc(all, func(m harness.Received) bool { return m.Topic != "" && m.Life > 1 })
	if len(w.lost) > 0 || recreated || w.settings.foreign || w.purges() || w.restored || w.twoNodes() {
		return nil
	}
	for _, l := range w.losses(ctx) {
		if l.count > 0 {
			problems = append(problems, fmt.Sprintf("a forwarder reported the loss of the events of %v objects, and the bus lost none", l.count))
		}
	}
	return problems
}

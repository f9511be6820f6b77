package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
)

// claim sees to it that a name on the bus is one cluster's. The first forwarder says
// on the bus which cluster that is, before it publishes anything else. Those of other
// clusters are refused, and one whose cluster was replaced ends.
type claim struct {
	name     string // of the cluster, on the bus
	uid      string // of its namespace kube-system; "" if that may not be read
	replaces string // the UID of a cluster whose name it may take over
	log      *slog.Logger

	mu   sync.Mutex
	bus  claimed     // nil where the sink cannot be read back
	held event.Claim // ours, once the bus has it
	lost error       // why the name is another cluster's by now
}

// claimed is a bus as far as it tells whose a name is.
type claimed interface {
	publish.Publisher
	LastClaim(context.Context) (event.Claim, error)
}

// newClaim says in the log what cannot be checked.
func newClaim(cfg config.Config, c *cluster, log *slog.Logger) (*claim, error) {
	if c.uid == "" {
		if cfg.Event.ClusterReplaces != "" {
			return nil, &usageError{errors.New("KUBERELAY_CLUSTER_REPLACES is set, but the UID of this cluster's namespace kube-system cannot be read, which is to be the next on the bus: allow get on that namespace")}
		}
		if cfg.Event.Sink != config.SinkStdout {
			log.Warn("the namespace kube-system cannot be read, so it is not checked whether another cluster has our name on the bus; allow get on it", "cluster", c.name)
		}
	}
	return &claim{name: c.name, uid: c.uid, replaces: cfg.Event.ClusterReplaces, log: log}, nil
}

// admit refuses the name if the bus says that it is another cluster's.
func (c *claim) admit(on event.Claim) error {
	switch {
	case c.uid == "", on.UID == "", on.UID == c.uid, on.UID == c.replaces:
		return nil
	}
	return &usageError{fmt.Errorf("the name %s belongs to another cluster on this bus: its namespace kube-system has the UID %s since %s, ours has %s. "+
		"Two clusters with one name would take each other's objects for gone. Give this one a name of its own in KUBERELAY_CLUSTER_NAME; "+
		"or, if it was built anew in the place of the other, which is no more, set KUBERELAY_CLUSTER_REPLACES=%s",
		c.name, on.UID, on.Claimed.Format(time.RFC3339), c.uid, on.UID)}
}

// admitToKafka is admit as Kafka asks it, which waits for what may be cured.
func (c *claim) admitToKafka(on event.Claim) error {
	if err := c.admit(on); err != nil {
		return fmt.Errorf("%w: %w", kafka.ErrMisconfigured, err)
	}
	return nil
}

// settle sees to it that the bus has our claim, or returns an error if it has
// another's. It is to be called before anything else is published, and blocks until it
// succeeds or ctx ends. From then on every reading of the checkpoint renews the claim,
// should the bus have lost it.
//
// Known is the checkpoint. The epoch is the first that our events may have.
func (c *claim) settle(ctx context.Context, b *bus, known *checkpoint.Checkpoint, progress func(func() error)) (epoch uint16, err error) {
	if b.claims == nil {
		return 0, nil
	}
	c.mu.Lock()
	c.bus = b.claims
	c.mu.Unlock()
	backoff := apiServerBackoff
	for {
		found, err := c.try(ctx, func(found event.Claim) uint16 { return c.firstEpoch(found, known) })
		var usage *usageError
		switch {
		case err == nil:
			return found.Epoch, nil
		case ctx.Err() != nil:
			return 0, errors.Join(err, ctx.Err())
		case errors.As(err, &usage), errors.Is(err, publish.ErrGone):
			return 0, err
		}
		progress(func() error { return err })
		c.log.Warn("the cluster's name cannot be claimed on the bus; will be tried again", "err", err)
		timer := time.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// firstEpoch is that of a new claim. The resourceVersions of a cluster that was built
// anew begin anew, so what they say is later only in an epoch of its own.
func (c *claim) firstEpoch(found event.Claim, known *checkpoint.Checkpoint) uint16 {
	epoch := max(known.Epoch(), found.Epoch)
	if c.replaces != "" && (found.UID != "" || known.Len() > 0) {
		epoch++
	}
	return epoch
}

// try makes the bus have our claim, unless it has one, and gives what it has. An error
// that is no usageError is to be tried again.
func (c *claim) try(ctx context.Context, epoch func(found event.Claim) uint16) (event.Claim, error) {
	found, err := c.bus.LastClaim(ctx)
	if err != nil || c.uid == "" {
		return found, err
	}
	if err := c.admit(found); err != nil {
		return found, err
	}
	if found.UID != c.uid {
		next := event.Claim{UID: c.uid, Replaces: found.UID, Epoch: epoch(found), Claimed: time.Now(), Position: found.Position}
		if err := c.put(ctx, next); err != nil {
			return event.Claim{}, err
		}
		c.log.Info("the cluster's name is claimed on the bus", "cluster", c.name, "uid", c.uid, "replaces", found.UID)
		found = next
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = found
	return found, nil
}

// put publishes a claim. If the bus got another in the meantime it refuses it.
func (c *claim) put(ctx context.Context, next event.Claim) error {
	m, err := event.Builder{Cluster: c.name}.ClusterClaimed(next)
	if err != nil {
		return err
	}
	return publishMarker(ctx, c.bus, m)
}

// renew writes our claim again if the bus has lost it, and finds out whether another
// cluster has taken the name. It does nothing before settle has succeeded.
func (c *claim) renew(ctx context.Context) error {
	c.mu.Lock()
	held, lost := c.held, c.lost
	c.mu.Unlock()
	if held.UID == "" || lost != nil {
		return lost
	}
	_, err := c.try(ctx, func(event.Claim) uint16 { return held.Epoch })
	var usage *usageError
	if errors.As(err, &usage) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lost = &takenError{usage}
		return c.lost
	}
	return err
}

// takenError says that the name is another cluster's by now, so that the bus is gone
// for this process, as [publish.ErrGone] says.
type takenError struct{ *usageError }

func (e *takenError) Is(target error) bool { return target == publish.ErrGone }
func (e *takenError) Unwrap() error        { return e.usageError }

// another is why the name is another cluster's by now, nil if it is ours.
func (c *claim) another() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// claimPoll is how often it is looked whether the name is still ours: NATS lets a
// forwarder write whose cluster was replaced. It costs a read of one message.
const claimPoll = 10 * time.Second

// keep renews the claim at intervals until ctx ends.
func (c *claim) keep(ctx context.Context) {
	ticker := time.NewTicker(claimPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := c.renew(ctx); err != nil && ctx.Err() == nil {
			c.log.Debug("it cannot be looked whether the cluster's name is still ours; will be tried again", "err", err)
		}
	}
}

// renewing is a bus whose claim is looked after whenever it is read: it may have lost
// that with all the rest, and what is written again should come after it.
type renewing struct {
	checkpoint.Source
	claim *claim
}

func (r renewing) Load(ctx context.Context, yield func(event.Key, event.Acked) error) error {
	if err := r.claim.renew(ctx); err != nil {
		return err
	}
	return r.Source.Load(ctx, yield)
}

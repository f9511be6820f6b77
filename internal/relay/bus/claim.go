package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/relay/retry"
)

// claim enforces one owner per cluster name on the bus. The first forwarder claims the name on the
// bus for its cluster, before it publishes anything else. A forwarder of another cluster then
// refuses to start. A forwarder stops if another cluster takes over the name. A sink that cannot be
// read back has a nil claim, which does nothing.
type claim struct {
	name     string            // of the cluster, on the bus
	uid      string            // of the kube-system namespace; "" if that is forbidden
	replaces string            // the UID of a cluster whose name this cluster may take over
	settings map[string]string // digests of the settings that determine the contents of the bus
	log      *slog.Logger

	waitFor func(func() error) // see [Config]
	bus     publish.Bus        // nil if the sink cannot be read back
	invalid *publish.Invalid   // nil if the sink cannot be read back

	lost atomic.Pointer[takenError] // not nil once this process must no longer write

	mu    sync.Mutex
	known uint16      // the checkpoint's highest epoch at the start of Acquire
	held  event.Claim // this cluster's claim, once the bus has it
}

// newClaim returns the claim of a cluster. It logs a warning if name conflicts cannot be detected.
func newClaim(c Config) (*claim, error) {
	cfg := c.Settings
	if c.UID == "" {
		if cfg.Event.ClusterReplaces != "" {
			return nil, &config.Error{Err: errors.New("KUBERELAY_CLUSTER_REPLACES is set, but the namespace kube-system, whose UID identifies this cluster on the bus, cannot be read: allow get on that namespace")}
		}
		if cfg.Event.Sink != config.SinkStdout {
			c.Logger.Warn("cannot read the namespace kube-system, so name conflicts with other clusters on the bus go undetected; allow get on it", "name", c.Cluster)
		}
	}
	return &claim{
		name: c.Cluster, uid: c.UID, replaces: cfg.Event.ClusterReplaces, settings: cfg.Digests(c.UID), log: c.Logger, waitFor: c.WaitFor,
	}, nil
}

// admit returns a [config.Error] if the claim on the bus shows that another cluster owns the name,
// or that a later release wrote a format that this release might misread.
func (c *claim) admit(found event.Claim) error {
	if err := found.Refusal(); err != nil {
		return &config.Error{Err: fmt.Errorf("%w: %s", err, event.FormatFix)}
	}
	if found.Admits(c.uid, c.replaces) {
		return nil
	}
	return &config.Error{Err: fmt.Errorf("the name %s belongs to another cluster on this bus: its namespace kube-system has the UID %s (claimed %s), and that of this cluster has %s. "+
		"Two clusters with the same name would delete each other's objects on the bus. Set KUBERELAY_CLUSTER_NAME to another name; "+
		"or, if this cluster replaces the other one, which no longer exists, set KUBERELAY_CLUSTER_REPLACES=%s",
		c.name, found.UID, found.Claimed.Format(time.RFC3339), c.uid, found.UID)}
}

// admitToKafka is like admit, but for a takeover on Kafka, which retries unless the error wraps
// [kafka.ErrMisconfigured].
func (c *claim) admitToKafka(found event.Claim) error {
	if err := c.admit(found); err != nil {
		return fmt.Errorf("%w: %w", kafka.ErrMisconfigured, err)
	}
	return nil
}

// Acquire claims the name on the bus with the settings of this process, unless the bus already has
// that claim. Call it before publishing anything else. It blocks until it succeeds, ctx ends, or
// another cluster owns the name. After that, every load renews the claim, in case the bus has lost it.
//
// loaded is the checkpoint. epoch is the lowest epoch that events of this cluster may have.
func (c *claim) Acquire(ctx context.Context, loaded *ledger.Term) (epoch uint16, err error) {
	if c == nil {
		return 0, nil
	}
	c.mu.Lock()
	c.known = loaded.Epoch()
	c.mu.Unlock()
	err = retry.Until(ctx, func() error {
		found, err := c.try(ctx, func(found event.Claim) (uint16, string) { return c.first(found, loaded) }, func(found event.Claim) bool {
			return maps.Equal(found.Settings, c.settings)
		})
		epoch = found.Epoch
		return err
	}, func(err error) error {
		if config.IsError(err) || errors.Is(err, publish.ErrGone) {
			return err
		}
		c.waitFor(func() error { return err })
		c.log.Warn("claiming the cluster name failed, retrying", "err", err)
		return nil
	})
	return epoch, err
}

// first returns the epoch of a new claim, and the UID of the cluster that it replaces. The
// resourceVersions of a rebuilt cluster start over, so its events need a new epoch to count as later
// than those of the old cluster. On a bus that has objects and no claim, the old cluster is the one in
// the settings.
func (c *claim) first(found event.Claim, loaded *ledger.Term) (epoch uint16, replaces string) {
	epoch = max(loaded.Epoch(), found.Epoch)
	isNewCluster := c.replaces != "" || !found.Forgotten.IsZero()
	if isNewCluster && (found.UID != "" || loaded.Len() > 0) {
		return event.NextEpoch(epoch), cmp.Or(found.UID, c.replaces)
	}
	return epoch, ""
}

// boundEpoch returns found. If the epoch of found exceeds the highest known epoch by more than a
// restore can explain, boundEpoch replaces it with the highest known epoch. This is necessary
// because anyone who can write to the bus can publish a claim with this cluster's UID, and the
// claim's epoch applies to every resource.
func (c *claim) boundEpoch(found event.Claim) event.Claim {
	c.mu.Lock()
	known := max(c.known, c.held.Epoch)
	c.mu.Unlock()
	if found.Epoch <= known || found.Epoch-known <= event.MaxEpochJump {
		return found
	}
	err := fmt.Errorf("epoch %d of the claim is more than %d above the highest known epoch %d", found.Epoch, event.MaxEpochJump, known)
	c.invalid.Report("claim", found.Position, event.Invalid(event.InvalidEpoch, err), "name", c.name)
	found.Epoch = known
	return found
}

// try claims the name for the current stream, unless the bus already has an up-to-date claim by this cluster,
// or the UID of this cluster is unknown. isCurrent reports whether the settings in a claim are up to date. If
// the bus has no claim by this cluster, anew returns the epoch of the new claim and the UID that the claim
// replaces. try returns the claim on the bus. A config.Error is final. After any other error, retry.
func (c *claim) try(ctx context.Context, anew func(found event.Claim) (epoch uint16, replaces string), isCurrent func(found event.Claim) bool) (event.Claim, error) {
	last, err := c.bus.LastClaim(ctx)
	found := c.boundEpoch(last)
	if err == nil {
		err = c.admit(found)
	}
	if err != nil || c.uid == "" {
		return found, err
	}
	stream := c.bus.Stream()
	if found.UID != c.uid || found.Stream != stream || found.Epoch != last.Epoch || found.Format < event.Format || found.IsRow || !found.Forgotten.IsZero() || !isCurrent(found) {
		next := event.Claim{
			UID: c.uid, Replaces: found.Replaces, Epoch: found.Epoch, Claimed: time.Now(), Stream: stream, Settings: c.settings, Position: found.Position,
		}
		if found.UID != c.uid {
			next.Epoch, next.Replaces = anew(found)
		}
		if err := c.put(ctx, next); err != nil {
			return event.Claim{}, err
		}
		c.log.Info("cluster name claimed on the bus", "name", c.name, "uid", c.uid, "replaces", next.Replaces, "stream", stream)
		found = next
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = found
	return found, nil
}

// put publishes a claim. The bus rejects it if another claim arrived in the meantime.
func (c *claim) put(ctx context.Context, next event.Claim) error {
	m, err := event.Builder{Cluster: c.name}.ClusterClaimed(next)
	if err != nil {
		return err
	}
	return publish.Put(ctx, c.bus, m)
}

// renew publishes the claim again if the bus lost it, and detects whether another cluster took the
// name. It does nothing before Acquire has succeeded.
func (c *claim) renew(ctx context.Context) error {
	if lost := c.taken(); c == nil || lost != nil {
		return lost
	}
	c.mu.Lock()
	held := c.held
	c.mu.Unlock()
	if held.UID == "" {
		return nil
	}
	// The claim on the bus can have the settings of another forwarder, for example of the next
	// leader.
	_, err := c.try(ctx, func(found event.Claim) (uint16, string) { return held.Epoch, cmp.Or(found.UID, held.Replaces) }, func(event.Claim) bool { return true })
	if config.IsError(err) {
		c.lost.Store(&takenError{err})
		return c.taken()
	}
	return err
}

// takenError wraps a [config.Error]: another cluster took the name, or a later release took over
// with another format. It matches [publish.ErrGone], because this process can't continue on the
// bus.
type takenError struct{ error }

func (e *takenError) Is(target error) bool { return target == publish.ErrGone }
func (e *takenError) Unwrap() error        { return e.error }

// taken returns an error if another cluster took the name, or a later release took over.
func (c *claim) taken() error {
	if c == nil {
		return nil
	}
	if lost := c.lost.Load(); lost != nil {
		return lost
	}
	return nil
}

// ReplacesNobody reports whether KUBERELAY_CLUSTER_REPLACES names a cluster that this cluster has not
// replaced, according to the claim.
func (c *claim) ReplacesNobody() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replaces != "" && c.held.UID != "" && c.held.Replaces != c.replaces
}

// claimPoll is the interval between checks of who owns the name. NATS requires these checks,
// because it does not reject the messages of a forwarder whose cluster was replaced. A check reads
// one message.
const claimPoll = 10 * time.Second

// KeepClaim renews the claim regularly until ctx ends, and detects whether another cluster took the
// name.
func (c *claim) KeepClaim(ctx context.Context) {
	if c == nil {
		return
	}
	_ = wait.PollUntilContextCancel(ctx, claimPoll, false, func(ctx context.Context) (bool, error) {
		if err := c.renew(ctx); err != nil && ctx.Err() == nil {
			c.log.Debug("checking the cluster name failed, retrying", "err", err)
		}
		return false, nil
	})
}

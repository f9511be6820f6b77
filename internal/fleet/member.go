package fleet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/fleet/source"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/relay"
	"github.com/kuberelay/kuberelay/internal/status"
)

// member copies one cluster of the source. It runs at most one Relay at a time.
type member struct {
	fleet   *Fleet
	name    string
	log     *slog.Logger
	leave   context.CancelFunc // ends the member
	since   time.Time          // when the source first reported the cluster
	changed chan struct{}      // has an element if wanted has changed

	mu       sync.Mutex
	wanted   source.Cluster
	unusable *status.Error        // the error of a kubeconfig that is newer than wanted; nil if there is none
	relay    *relay.Relay         // nil while none runs
	registry *prometheus.Registry // of the Relay; empty while none runs
	failed   error                // why no Relay runs
	last     string               // text of the last failure, also while a Relay runs
	failedAt time.Time            // when that failure first occurred; zero after a Relay that ran longer than maxDelay
}

func newMember(f *Fleet, c source.Cluster, leave context.CancelFunc) *member {
	return &member{
		fleet: f, name: c.Name, log: f.Relay.Logger.With("cluster", c.Name), leave: leave,
		since: time.Now(), changed: make(chan struct{}, 1), wanted: c, registry: prometheus.NewRegistry(),
	}
}

// set records the current kubeconfig of the source. An unusable kubeconfig does not replace a
// usable one, because the file might be half written.
func (m *member) set(c source.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Err != nil && m.wanted.Err == nil {
		if m.unusable == nil || m.unusable.Message != c.Err.Error() {
			m.log.Warn("the new kubeconfig of a cluster cannot be used, keeping the last one", "err", c.Err)
			m.unusable = &status.Error{Message: c.Err.Error(), Since: time.Now().UTC()}
		}
		return
	}
	m.unusable = nil
	if c.Digest == m.wanted.Digest && text(c.Err) == text(m.wanted.Err) {
		return
	}
	m.wanted = c
	select {
	case m.changed <- struct{}{}:
	default: // a change is already recorded
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// run runs one Relay after another until ctx ends. It starts a new Relay at once when the
// kubeconfig changes, and after a backoff when a Relay could not start or ended by itself.
func (m *member) run(ctx context.Context) {
	backoff := newBackoff()
	for ctx.Err() == nil {
		began := time.Now()
		err, changed := m.runOnce(ctx)
		if changed {
			m.log.Info("the kubeconfig of a cluster has changed")
			backoff = newBackoff()
			continue
		}
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > maxDelay {
			backoff = newBackoff()
		}
		m.fail(err)
		select {
		case <-ctx.Done():
		case <-m.changed:
			backoff = newBackoff()
		case <-time.After(backoff.Step()):
		}
	}
}

// maxDelay is the longest backoff, before jitter. With jitter, it is up to about 80 seconds.
const maxDelay = time.Minute

func newBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.3, Steps: 1 << 30, Cap: maxDelay}
}

// runOnce runs a Relay until ctx ends, the kubeconfig changes, or the Relay ends by itself.
func (m *member) runOnce(ctx context.Context) (err error, changed bool) { //nolint:revive // the error is not the reason of the end
	m.mu.Lock()
	c := m.wanted
	m.mu.Unlock()
	if c.Err != nil {
		return c.Err, false
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- m.copy(running, c) }()
	select {
	case err = <-ended:
		return cmp.Or(err, errStopped), false
	case <-m.changed:
		stop()
		if err = <-ended; err != nil && !errors.Is(err, context.Canceled) {
			m.log.Info("the copy of a cluster ended with an error", "err", err)
		}
		return nil, true
	}
}

// copy runs one Relay.
func (m *member) copy(ctx context.Context, c source.Cluster) error {
	registry := prometheus.NewRegistry()
	of := m.fleet.Relay
	of.Settings, of.Kube = Settings(of.Settings, c), c.Kube
	of.Logger, of.Registerer = m.log, prometheus.WrapRegistererWith(prometheus.Labels{"cluster": m.name}, registry)
	if m.fleet.Published != nil {
		of.Published = m.fleet.Published(m.name)
	}
	r, err := relay.New(of)
	if err != nil {
		return err
	}
	began := time.Now()
	m.mu.Lock()
	m.relay, m.registry, m.failed = r, registry, nil
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.relay, m.registry = nil, prometheus.NewRegistry(); time.Since(began) > maxDelay {
			m.failedAt = time.Time{}
		}
	}()
	return r.Run(ctx)
}

// errStopped is the error of a Relay that ends without an error.
var errStopped = errors.New("copying the cluster stopped")

// Settings returns the settings of one cluster.
func Settings(of config.Config, c source.Cluster) config.Config {
	of.Event.ClusterName = c.Name
	of.Leader.LeaseName = leaseName(of.Leader.LeaseName, c.Name)
	of.Leader.Namespace = cmp.Or(of.Leader.Namespace, c.Namespace)
	return of
}

// leaseName returns the name of a cluster's lease. If that name is not valid for a lease, it
// returns a similar name with a hash.
func leaseName(lease, cluster string) string {
	name := lease + "-" + cluster
	if len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	plain := strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(cluster))
	hash := sha256.Sum256([]byte(cluster))
	return fmt.Sprintf("%s-%.100s-%x", lease, plain, hash[:4])
}

// fail records and logs why no Relay runs.
func (m *member) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last != text(err) || m.failedAt.IsZero() {
		m.failedAt = time.Now()
	}
	m.failed, m.last = err, text(err)
	m.log.Error("cannot copy the cluster, retrying", "err", err)
}

// metrics returns the metrics of the Relay.
func (m *member) metrics() prometheus.Gatherer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.registry
}

// state returns the Relay, or nil if none runs. failed is the reason why none runs, or nil if a
// Relay is about to start. since is the time when that failure first occurred.
func (m *member) state() (r *relay.Relay, failed error, since time.Time) { //nolint:revive,staticcheck // the error is a part of the state
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.relay, m.failed, m.failedAt
}

var errStarting = errors.New("starting")

// check returns why the cluster is not copied, or nil if it is copied.
func (m *member) check() error {
	r, failed, _ := m.state()
	if r == nil {
		return cmp.Or(failed, errStarting)
	}
	for _, c := range r.Checks() {
		if err := c.Check(); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// startTime is how long a starting cluster can delay the readiness of a process that starts.
const startTime = time.Minute

// settled reports whether a starting process no longer waits for the cluster. This is the case if
// the cluster is copied, its Relay has failed, or startTime has passed.
func (m *member) settled() bool {
	r, failed, _ := m.state()
	return r == nil && failed != nil || time.Since(m.since) > startTime || m.check() == nil
}

// Checks returns the check of /readyz: see docs/fleet.md.
func (f *Fleet) Checks() []operations.Check {
	return []operations.Check{{Name: "clusters", Check: f.check, Note: f.failing}}
}

// check returns nil if the process is ready. A process that starts waits for every cluster that might
// still become ready. After that, it is ready while at least one cluster is copied, or the source
// has no clusters. A new or broken cluster is no reason to withdraw a pod that copies other
// clusters.
func (f *Fleet) check() error {
	f.mu.Lock()
	reported, failed, ready := f.reported, f.failed, f.ready
	f.mu.Unlock()
	if !reported {
		return cmp.Or(failed, errStarting)
	}
	var first error
	well, all := 0, f.sorted()
	for _, m := range all {
		err := m.check()
		if err == nil {
			well++
			continue
		}
		err = fmt.Errorf("%s: %w", m.name, err)
		if !ready && !m.settled() {
			return err
		}
		first = cmp.Or(first, err)
	}
	if well == 0 && len(all) > 0 {
		return fmt.Errorf("none of %d clusters is copied: %w", len(all), first)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready = true
	return nil
}

// failing returns how many clusters are copied, and the names of clusters that are not.
func (f *Fleet) failing() string {
	var names []string
	all := f.sorted()
	for _, m := range all {
		if m.check() != nil {
			names = append(names, m.name)
		}
	}
	text := fmt.Sprintf("%d of %d copied", len(all)-len(names), len(all))
	if len(names) > 0 {
		text += ", not " + strings.Join(names[:min(len(names), maxNamed)], ", ")
	}
	return text
}

// maxNamed limits the names in the text of failing.
const maxNamed = 10

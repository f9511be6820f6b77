// Package fleet runs a [relay.Relay] for each cluster of a source, in one process:
//
//	source --clusters--> Fleet --start, stop--> member: one Relay after another, with backoff
//	                                               |
//	             metrics, status, checks, trace <--+--> API server of the cluster, bus
//
// The source reports all of its clusters after each change. [Fleet] compares them with its members.
// It starts a member for a new cluster, ends the member of a cluster that the source no longer has,
// and starts a new Relay for a cluster whose kubeconfig has changed. A member runs its Relay. If
// the Relay ends by itself, the member starts a new one after a backoff.
//
// The package guarantees:
//
//   - Members share only the process, the configuration, the built-in NATS server if one is used,
//     and the connections to the bus. Each member has its own clients, ledger, queue, lease, and
//     metrics, and its own limits on the events in flight. So a cluster that hangs, or whose
//     kubeconfig or permissions are wrong, doesn't delay other clusters.
//   - An error in one cluster doesn't end the process. The error appears in the log, the status, and
//     the metrics, and the member retries.
//   - Before a member ends, it publishes its remaining changes, as a forwarder does on SIGTERM.
//     The objects of its cluster stay on the bus.
//   - A kubeconfig that becomes unusable does not end a running member.
//   - At most one Relay of a cluster runs at a time.
//
// The package does not guarantee that the members get equal shares of CPU and memory, and does not
// limit the number of members. A connection fault affects all members that use the connection. On
// NATS, all members use one connection. After a change of the credentials, the connection is
// replaced when no member has a message in flight. On Kafka, the members take connections from one
// pool, and a connection carries one request at a time. The requests of each cluster carry that
// cluster's own producer ID, which fences the cluster's previous writer.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/fleet/source"
	"github.com/kuberelay/kuberelay/internal/relay"
	"github.com/kuberelay/kuberelay/internal/relay/bus"
)

// Config configures a Fleet.
type Config struct {
	// Relay is the configuration of every Relay. The Fleet sets the values that differ: the name of
	// the cluster, Kube, the lease, Server, Connections, Published, and Registerer. It adds the
	// name of the cluster to the Logger.
	Relay  relay.Config
	Source source.Source
	// Metrics gathers the metrics of the process. [Fleet.Gather] adds the metrics of the clusters.
	Metrics prometheus.Gatherer
	// Published returns a cluster's callback for acknowledged events, as in [relay.Config]. It may
	// be nil. Gone is called when a cluster has left, and is required with Published.
	Published func(cluster string) func(key event.Key, of event.Type, version string, observed, acknowledged time.Time)
	Gone      func(cluster string)
}

// Fleet copies the clusters of a source to one bus. Create one with [New].
type Fleet struct {
	Config
	running sync.WaitGroup // of the members

	mu       sync.Mutex
	wanted   map[string]source.Cluster // the clusters that the source reported last
	members  map[string]*member        // includes members that are ending
	reported bool                      // the source has been read
	failed   error                     // the current error of the source
	since    time.Time                 // when the current error first occurred
	ready    bool                      // the fleet has been ready
}

// New returns a Fleet that does nothing until [Fleet.Run].
func New(c Config) *Fleet {
	c.Relay.Connections = bus.NewConnections(c.Relay.Logger)
	return &Fleet{Config: c, members: map[string]*member{}}
}

// Run copies the clusters until ctx ends. Then it publishes the remaining changes within
// KUBERELAY_DRAIN_TIMEOUT, and returns when everything that it started has ended. It returns an
// error only if the built-in NATS server fails to start or to stop.
func (f *Fleet) Run(ctx context.Context) (err error) {
	if f.Relay.Settings.BuiltInServer() {
		server, err := bus.StartServer(ctx, f.Relay.Settings, f.Relay.Logger)
		if err != nil {
			return err
		}
		f.Relay.Server = server
		defer func() {
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), bus.CloseTimeout)
			defer cancel()
			err = errors.Join(err, server.Shutdown(ending))
		}()
	}
	f.Source.Watch(ctx, func(all []source.Cluster) { f.update(ctx, all) }, f.noteFailure)
	f.running.Wait()
	f.Relay.Logger.Info("stopped")
	return nil
}

// update makes the members match the clusters of the source.
func (f *Fleet) update(ctx context.Context, all []source.Cluster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reported, f.wanted = true, map[string]source.Cluster{}
	for _, c := range all {
		f.wanted[c.Name] = c
		if m := f.members[c.Name]; m != nil {
			m.set(c)
			continue
		}
		f.start(ctx, c)
	}
	for name, m := range f.members {
		if _, ok := f.wanted[name]; !ok {
			m.leave()
		}
	}
}

// start starts a member. The caller holds the lock.
func (f *Fleet) start(ctx context.Context, c source.Cluster) {
	if ctx.Err() != nil {
		return
	}
	running, leave := context.WithCancel(ctx)
	m := newMember(f, c, leave)
	f.members[c.Name] = m
	m.log.Info("cluster added")
	f.running.Go(func() {
		defer leave()
		m.run(running)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.members, c.Name)
		if f.Gone != nil {
			f.Gone(c.Name)
		}
		again, ok := f.wanted[c.Name]
		if !ok {
			m.log.Info("the cluster is no longer copied; its objects stay on the bus")
			return
		}
		m.log.Info("copy ended")
		f.start(ctx, again) // the cluster returned while its member ended, or the process ends
	})
}

// noteFailure records and logs an error of the source. A nil error means that the source works.
func (f *Fleet) noteFailure(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && (f.failed == nil || f.failed.Error() != err.Error()) {
		f.since = time.Now()
		f.Relay.Logger.Error("cannot read the source of clusters, retrying", "source", f.Relay.Settings.Fleet.Source(), "err", err)
	}
	f.failed = err
}

// sorted returns the members in the order of their names.
func (f *Fleet) sorted() (all []*member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *member) int { return strings.Compare(a.name, b.name) })
	return all
}

// find returns the member with a name.
func (f *Fleet) find(name string) (*member, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[name]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("the source has no cluster %q", name)
}

var (
	_ prometheus.Gatherer  = (*Fleet)(nil)
	_ prometheus.Collector = (*Fleet)(nil)
)

// Gather implements [prometheus.Gatherer]. It returns the metrics of the process, and the metrics
// of each cluster with its name in the label cluster. Each Relay has its own registry, so that no
// metric of the Relay remains when it ends.
func (f *Fleet) Gather() ([]*dto.MetricFamily, error) {
	own := prometheus.NewRegistry()
	own.MustRegister(f)
	all := prometheus.Gatherers{f.Metrics, own}
	for _, m := range f.sorted() {
		all = append(all, m.metrics())
	}
	return all.Gather()
}

var clusterUpDesc = prometheus.NewDesc("kuberelay_cluster_up",
	"1 if the cluster is copied, 0 if its kubeconfig, its API server, its permissions, or the bus prevents that; forwarder status has the reason. Only a forwarder of several clusters has this metric.",
	[]string{"cluster"}, nil)

var sourceUpDesc = prometheus.NewDesc("kuberelay_cluster_source_up",
	"1 if the source of clusters can be read, 0 if not, or not yet. While it is 0, the forwarder keeps copying the clusters that it knows, and does not notice new clusters or kubeconfigs; forwarder status has the reason. Only a forwarder of several clusters has this metric.",
	nil, nil)

// Describe implements [prometheus.Collector].
func (f *Fleet) Describe(to chan<- *prometheus.Desc) {
	to <- clusterUpDesc
	to <- sourceUpDesc
}

// Collect implements [prometheus.Collector].
func (f *Fleet) Collect(to chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, up bool, labels ...string) {
		value := 0.0
		if up {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for _, m := range f.sorted() {
		gauge(clusterUpDesc, m.check() == nil, m.name)
	}
	f.mu.Lock()
	up := f.reported && f.failed == nil
	f.mu.Unlock()
	gauge(sourceUpDesc, up)
}

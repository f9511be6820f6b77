// Package relay is the engine of the forwarder: it keeps an exact copy of one cluster on one bus.
// [Relay.Run] connects to both and returns when everything that it started has ended. The informers
// run all the time. The parts between them and the bus belong to a leadership term. See [term]. A
// forwarder with leader election has one term after another.
//
// The package connects the other packages. It makes only the decisions that concern several of
// them: when a term begins and ends, and how long a shutdown takes. path.go shows the path of one
// event.
//
// The package guarantees that nothing is published outside of a term, or before the checkpoint is
// loaded and the cluster's name is claimed. A shutdown takes at most KUBERELAY_DRAIN_TIMEOUT plus 8
// s, even if a server does not respond. With leader election, the release of the lease can take 2 s
// more. The package does not guarantee that a shutdown publishes every change. The next start
// publishes the remaining changes.
package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/filter"
	"github.com/kuberelay/kuberelay/internal/informers"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/natsserver"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/publish/stdout"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/internal/relay/bus"
	"github.com/kuberelay/kuberelay/internal/shape"
)

// Config is the configuration of a [Relay]. Every field is required unless its comment says
// otherwise.
type Config struct {
	Settings config.Config // as config.Load has checked them
	Kube     *rest.Config  // how to reach the API server; each client gets a copy

	// Identity names this process among the candidates for the lease. It is unique among all
	// current and past processes. Only leader election needs Identity and
	// Settings.Leader.Namespace.
	Identity string
	// Writer names this process in the marker of a takeover on Kafka. If it is "", the host name is
	// used.
	Writer string

	// Server is the built-in NATS server that several Relays share. If it is nil and the settings
	// ask for a built-in server, the Relay runs its own.
	Server *natsserver.Server
	// Connections are the bus connections that several Relays share. If nil, the Relay opens its own.
	Connections *bus.Connections

	RedactionKey []byte         // key of the hashes that replace values; nil for a random key
	Out          *stdout.Output // where the sink stdout writes

	// Published is the callback of [forward.Config]. It may be nil.
	Published func(key event.Key, of event.Type, version string, observed, acknowledged time.Time)

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Relay copies the state of one cluster to one bus. Make one with [New].
type Relay struct {
	Config
	state readiness
	shape *shape.Shapes

	filterFailures *filter.Failures

	cluster   *cluster          // nil until Run has connected to it
	converter *decode.Converter // nil until Run has connected to the cluster
	ledger    *ledger.Ledger
	informers *informers.Set      // nil until Run has connected to the cluster
	comparer  *reconcile.Comparer // nil until Run has connected to the cluster
	warned    sync.Once
	work      *longwork.Tracker
	takeover  longwork.Counter     // measures a takeover on Kafka
	loading   longwork.Counter     // measures a checkpoint load
	term      atomic.Pointer[term] // nil while this process is not the leader
}

// New makes a Relay that does nothing until [Relay.Run].
func New(c Config) (*Relay, error) {
	failures := filter.NewFailures(c.Logger, c.Registerer)
	shapes, err := shape.New(c.Settings.Content, failures.Add)
	if err != nil {
		return nil, &config.Error{Err: err}
	}
	r := &Relay{Config: c, shape: shapes, filterFailures: failures, ledger: ledger.New()}
	r.work = longwork.New(r.longWork(), time.Now, c.Logger)
	c.Registerer.MustRegister(unmatchedCollector{r})
	return r, nil
}

// Run connects to the cluster and the bus, and publishes until ctx ends. Then it publishes the
// remaining changes within KUBERELAY_DRAIN_TIMEOUT, and returns when everything that it started has
// ended. It returns an error only if the forwarder stopped by itself. The error is a [config.Error]
// if a retry cannot succeed.
func (r *Relay) Run(ctx context.Context) error {
	c, err := connectCluster(ctx, r.Config, r.state.waitFor)
	if err != nil {
		return err
	}
	r.Logger.Info("cluster found", "name", c.name, "uid", c.uid)
	r.cluster, r.converter = c, decode.NewConverter(r.RedactionKey, c.name)
	r.state.connected(c.name)
	r.informers = r.newInformers(c)
	r.comparer = r.newComparer(c)
	reporting, stop := context.WithCancel(ctx)
	var reports sync.WaitGroup
	reports.Go(func() { r.report(reporting) })
	defer reports.Wait()
	defer stop()
	run := r.runAlone
	if r.Settings.Leader.Election {
		run = r.runElected
	}
	if err := run(ctx); err != nil {
		return err
	}
	r.Logger.Info("stopped")
	return nil
}

// Checks returns the checks of /readyz. They may be called before Run.
func (r *Relay) Checks() []operations.Check { return r.state.checks(r.Settings) }

// rediscover is the interval between polls of discovery. The informers find new
// CustomResourceDefinitions without waiting for a poll.
const rediscover = 30 * time.Second

func (r *Relay) newInformers(c *cluster) *informers.Set {
	s := r.Settings
	of := informers.Config{
		Selection: selection(s), Namespaces: namespaceSelection(s), PublishDeselected: r.publishesDeselected(),
		LabelSelector: s.Watch.LabelSelector, FieldSelector: s.Watch.FieldSelector, Follow: s.Watch.Follow,
	}
	of.Dynamic, of.Streams, of.Reads, of.Discovery, of.Access = c.dynamic, c.streams, c.reads, c.discovery, c.access
	of.Ledger, of.Converter, of.Shape = r.ledger, r.converter, r.shape.Func()
	of.Resync, of.Rediscover = s.Work.ResyncPeriod, rediscover
	// Remember is twice the longest time without a leader, so that the next leader publishes the
	// changes that happened in that time.
	of.Standby, of.Remember = s.Leader.Election, 2*s.Leader.LeaseDuration
	of.Enqueue, of.EnqueueLowPriority = r.enqueue, r.enqueueLowPriority
	of.Compare, of.Discovered, of.Markers = r.compare, r.discovered, markers{r}
	of.InformerMetrics, of.Now, of.Logger, of.Registerer = operations.InformerMetrics(r.Registerer), time.Now, r.Logger, r.Registerer
	return informers.New(of)
}

func (r *Relay) newComparer(c *cluster) *reconcile.Comparer {
	return reconcile.New(reconcile.Config{
		Informers: r.informers, Discovery: c.discovery, Reads: c.reads,
		PublishDeselected: r.publishesDeselected(),
		Now:               time.Now, Logger: r.Logger, Registerer: r.Registerer,
	})
}

// publishesDeselected reports whether a deselected event is published for objects that
// another configuration selected.
func (r *Relay) publishesDeselected() bool {
	return r.Settings.Watch.OnDeselect == config.OnDeselectPublish
}

func selection(s config.Config) discovery.Selection {
	return discovery.Selection{Include: s.Watch.Resources, Exclude: s.Watch.ExcludeResources, UnlessNamed: config.UnlessNamed()}
}

func namespaceSelection(s config.Config) discovery.NamespaceSelection {
	return discovery.NamespaceSelection{Include: s.Watch.Namespaces, Exclude: s.Watch.ExcludeNamespaces, Selector: NamespaceSelector(s)}
}

// NamespaceSelector parses KUBERELAY_NAMESPACE_SELECTOR. It returns nil if the setting is empty.
func NamespaceSelector(s config.Config) labels.Selector {
	if s.Watch.NamespaceSelector == "" {
		return nil
	}
	selector, _ := labels.Parse(s.Watch.NamespaceSelector) // the configuration was checked
	return selector
}

// runAlone implements Run without leader election. It has one term, which lasts as long as the
// process runs.
func (r *Relay) runAlone(ctx context.Context) (err error) {
	t, err := r.newTerm(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	r.state.started(r, nil)
	w := r.watch(ctx)
	lost := t.serve(context.Background(), w)
	return errors.Join(w.end(r.Logger), lost)
}

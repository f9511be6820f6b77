package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kuberelay/kuberelay/internal/check"
	"github.com/kuberelay/kuberelay/internal/check/observe"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/explain"
	"github.com/kuberelay/kuberelay/internal/fleet"
	clusters "github.com/kuberelay/kuberelay/internal/fleet/source"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/internal/relay"
	"github.com/kuberelay/kuberelay/internal/sinks"
)

func newCheckCommand() *cobra.Command {
	var output, memory, cluster string
	var o observer
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the cluster, the permissions and the bus, before or after installing",
		Long: `Check finds out whether a forwarder with this environment can do its work: the API
server, the permissions, what is selected, the bus with its stream or topics, the memory,
and who writes. It prints a line for each check: ok, warning, failed, or skipped with
the reason. A warning or a failure has a fix, and a link to its section in
docs/troubleshooting.md.

For a forwarder of several clusters, it checks each of them; --cluster checks one.

Run it with --pre before the installation, and without in the pod of a forwarder. It only
reads: it publishes nothing, takes no lease, and creates no stream or topic.

Exit codes: 0 ok, 1 a warning, 2 a failure, or wrong command line.`,
		Example: `  forwarder check --pre --memory-limit=256Mi
  forwarder check
  forwarder check --output=json | jq '.checks[] | select(.status == "failed")'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := check.Printers()[output]
			if !ok {
				return &usageError{fmt.Errorf("--output=%q: use table or json", output)}
			}
			if o.at.timeout <= 0 {
				return &usageError{errTimeout}
			}
			limit, err := memoryLimit(memory, o.pre)
			if err != nil {
				return &usageError{err}
			}
			o.memoryLimit, o.log = limit, slog.New(slog.DiscardHandler) // the report has all errors
			klogOnce.Do(func() { klog.SetSlogLogger(o.log) })
			settings, err := config.Load(config.Forwarding, contentChecks()...)
			if err == nil {
				if wrong := selectCluster(&settings, cluster); wrong != nil {
					return wrong
				}
			}
			report := o.report(cmd.Context(), settings, err)
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			if err := write(cmd.OutOrStdout(), report); err != nil {
				return err
			}
			if code := report.Status.Code(); code > 0 {
				return exitCode(code)
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&o.pre, "pre", false, "the forwarder is not installed yet")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().StringVar(&memory, "memory-limit", "", "memory limit of the forwarder's container, such as 256Mi (default: without --pre, that of this container)")
	clusterFlag(cmd, &cluster)
	o.at.flags(cmd)
	o.at.timeoutFlag(cmd)
	return cmd
}

// memoryLimit returns the memory limit of the forwarder in bytes, or 0 if there is none. text is the
// value of --memory-limit.
func memoryLimit(text string, pre bool) (int64, error) {
	if text != "" {
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Value() <= 0 {
			return 0, fmt.Errorf("--memory-limit=%q: write it as in a pod, such as 256Mi", text)
		}
		return q.Value(), nil
	}
	limit, err := memlimit.FromCgroup()
	if pre || err != nil || limit > 1<<62 { // without cgroups, there is no limit
		return 0, nil //nolint:nilerror // as documented
	}
	return int64(limit), nil
}

// observer observes the facts that the checks need.
type observer struct {
	pre         bool
	at          statusAddress
	memoryLimit int64
	log         *slog.Logger
}

// maxObserved is the maximum number of clusters to observe at the same time.
const maxObserved = 8

// report collects the facts for the settings and checks them. If the settings have several clusters, it
// does so for each cluster. wrong is the error of the settings.
func (o observer) report(ctx context.Context, settings config.Config, wrong error) check.Report {
	if wrong != nil || settings.Fleet.Source() == "" {
		return check.Run(o.facts(ctx, settings, wrong, func() (*rest.Config, error) { return loadKubeConfig(settings, "check") }))
	}
	all, err := readClusters(ctx, settings, "check", o.log)
	if name := settings.Event.ClusterName; name != "" && err == nil {
		c, missing := clusters.Find(all, name)
		all = []clusters.Cluster{{Name: name, Kube: c.Kube, Namespace: c.Namespace, Err: missing}}
	}
	if err != nil {
		return check.Run(o.facts(ctx, settings, nil, func() (*rest.Config, error) { return nil, err }))
	}
	reports := make([]check.Report, len(all))
	var observing errgroup.Group
	observing.SetLimit(maxObserved)
	for n, c := range all {
		observing.Go(func() error {
			f := o.facts(ctx, fleet.Settings(settings, c), nil, func() (*rest.Config, error) { return c.Kube, c.Err })
			f.Cluster = c.Name
			reports[n] = check.Run(f)
			return nil
		})
	}
	_ = observing.Wait() // the functions return no error; the reports have the errors
	if settings.Event.ClusterName != "" {
		return reports[0]
	}
	return check.Clusters(reports)
}

// facts collects all facts, each one after the facts that it depends on. wrong is the error of the
// settings. kube returns the configuration of the clients.
func (o observer) facts(ctx context.Context, settings config.Config, wrong error, kube func() (*rest.Config, error)) check.Facts {
	f := check.Facts{
		Pre: o.pre, Now: time.Now(), Validities: map[string][]check.Validity{}, MemoryLimit: o.memoryLimit,
		Settings: settings, ConfigErr: wrong, Writer: writerName(),
	}
	f.Version, _ = builtFrom()
	if wrong != nil {
		return f
	}
	var asking sync.WaitGroup
	if !o.pre { // concurrently, because the forwarder may wait for the same API server
		asking.Go(func() { observeForwarder(ctx, &f, o.at) })
	}
	config, err := kube()
	observeCluster(ctx, &f, config, err, o.at.timeout, o.log)
	asking.Wait()
	observe.Files(f.Settings, f.Validities)
	f.DataDir = observe.DataDir(f.Settings.Server.DataDir)
	observeBus(ctx, &f, o.at.timeout)
	return f
}

// observeCluster collects the facts about the cluster. It waits for each response from the API server
// no longer than the timeout. err is the reason why the clients have no configuration.
func observeCluster(ctx context.Context, f *check.Facts, kube *rest.Config, err error, timeout time.Duration, log *slog.Logger) {
	if err == nil {
		f.Validities = observe.Kubeconfig(kube)
		err = followToken(kube, log)
	}
	var c *observe.Cluster
	if err == nil {
		c, err = observe.NewCluster(kube, timeout)
	}
	namespace := f.Settings.Leader.Namespace
	if err == nil && namespace == "" && f.Settings.Fleet.Source() == "" {
		if namespace, err = kubeNamespace(); err != nil {
			err = fmt.Errorf("find the namespace of the lease: %w; set KUBERELAY_LEASE_NAMESPACE", err)
		}
	}
	if f.KubeErr = err; err != nil {
		return
	}
	f.Server, f.Validities[check.ServerCertificate] = c.Server(ctx)
	f.Server.Err = inTime(ctx, f.Server.Err, timeout)
	if f.Server.Err != nil {
		return
	}
	f.Selection, f.SelectionErr = relay.Explain(ctx, relay.Config{Settings: f.Settings, Kube: kube}, explain.Question{})
	if f.SelectionErr == nil {
		f.Lists = c.Lists(ctx, f.Settings.Watch, f.Selection)
	}
	f.Lease = c.Lease(ctx, f.Settings.Leader, namespace)
	f.Rights = c.Rights(ctx, f.NeededRights())
}

func observeForwarder(ctx context.Context, f *check.Facts, at statusAddress) {
	c, err := at.connect(f.Settings.Operations, at.timeout)
	if err == nil {
		if f.Settings.Fleet.Source() != "" {
			c.cluster = f.Settings.Event.ClusterName
		}
		d, failed := c.document(ctx)
		if err = failed; err == nil {
			f.Forwarder = &d
		}
	}
	f.ForwarderErr, f.TokenNeeded, f.TokenNotReviewed = err, errors.Is(err, errNoToken), errors.Is(err, errNotReviewed)
}

// observeBus inspects the bus under the name of the cluster. The whole inspection takes no longer than
// the timeout.
func observeBus(ctx context.Context, f *check.Facts, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cfg := f.Settings
	if cfg.Event.ClusterName == "" {
		cfg.Event.ClusterName = f.Server.UID
	}
	switch {
	case cfg.Event.Sink == config.SinkStdout, f.Pre && cfg.Event.Sink == config.SinkNATS && len(cfg.NATS.URLs) == 0:
	case cfg.Event.Sink == config.SinkKafka:
		cfg.Event.ClusterName = cmp.Or(cfg.Event.ClusterName, "unknown") // a name without a claim
		var watched []schema.GroupResource
		for _, r := range f.Selection.Resources {
			if r.Watched != explain.Nowhere {
				watched = append(watched, schema.ParseGroupResource(r.Name))
			}
		}
		f.Kafka, f.BusErr = sinks.InspectKafka(ctx, cfg, watched)
	default:
		f.NATS, f.BusErr = within(ctx, func(ctx context.Context) (nats.Inspection, error) {
			ctx, cancel := context.WithTimeout(ctx, timeout*9/10) // leaves time to report why it can't connect
			defer cancel()
			return sinks.InspectNATS(ctx, cfg)
		})
		if !f.NATS.TLSUntil.IsZero() {
			f.Validities[check.BusCertificate] = []check.Validity{{What: "the certificate of the NATS server", From: f.NATS.TLSFrom, Until: f.NATS.TLSUntil}}
		}
	}
	f.BusErr = inTime(ctx, f.BusErr, timeout)
}

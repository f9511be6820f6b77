// Package observe collects the facts of package check from the API server, the bus, a running
// forwarder, files, and the volume. It only reads, and requests access reviews. A fact that cannot
// be collected is an error in the facts, so the collection as a whole never fails.
package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/kuberelay/kuberelay/internal/check"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/deadline"
	"github.com/kuberelay/kuberelay/internal/explain"
	"github.com/kuberelay/kuberelay/internal/fleet"
	"github.com/kuberelay/kuberelay/internal/fleet/source"
	"github.com/kuberelay/kuberelay/internal/kubeconfig"
	"github.com/kuberelay/kuberelay/internal/operations/client"
	"github.com/kuberelay/kuberelay/internal/relay"
	"github.com/kuberelay/kuberelay/internal/sinks"
)

// Observer observes the facts that the checks need.
type Observer struct {
	Pre         bool           // the forwarder is not installed yet
	Forwarder   client.Address // its timeout also limits each response from the API server and the bus
	MemoryLimit int64          // memory limit of the forwarder in bytes; 0 for none
	Version     string         // version of this process
	Writer      string         // name of this process on Kafka
}

// maxObserved is the maximum number of clusters to observe at the same time.
const maxObserved = 8

// Report collects the facts for the settings in find, and runs the checks. If the settings name several
// clusters, it does so for each cluster. wrong is the error in the settings, or nil.
func (o Observer) Report(ctx context.Context, find kubeconfig.Finder, wrong error) check.Report {
	settings := find.Settings
	if wrong != nil || settings.Fleet.Source() == "" {
		return check.Run(o.facts(ctx, settings, wrong, func() (*rest.Config, error) { return find.Load(ctx) }))
	}
	all, err := find.Clusters(ctx)
	if name := settings.Event.ClusterName; name != "" && err == nil {
		c, missing := source.Find(all, name)
		all = []source.Cluster{{Name: name, Kube: c.Kube, Namespace: c.Namespace, Err: missing}}
	}
	if err != nil {
		return check.Run(o.facts(ctx, settings, nil, func() (*rest.Config, error) { return nil, err }))
	}
	reports := make([]check.Report, len(all))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), maxObserved, len(all), func(n int) {
		f := o.facts(ctx, fleet.Settings(settings, all[n]), nil, func() (*rest.Config, error) { return all[n].Kube, all[n].Err })
		f.Cluster = all[n].Name
		reports[n] = check.Run(f)
	})
	if settings.Event.ClusterName != "" {
		return reports[0]
	}
	return check.Clusters(reports)
}

// facts collects all facts, each one after the facts that it depends on. wrong is the error in the
// settings, or nil. kube returns the client configuration for the cluster.
func (o Observer) facts(ctx context.Context, settings config.Config, wrong error, kube func() (*rest.Config, error)) check.Facts {
	f := check.Facts{
		Pre: o.Pre, Now: time.Now(), Validities: map[string][]check.Validity{}, MemoryLimit: o.MemoryLimit,
		Settings: settings, ConfigErr: wrong, Version: o.Version, Writer: o.Writer,
	}
	if wrong != nil {
		return f
	}
	var asking sync.WaitGroup
	if !o.Pre { // concurrently, because the forwarder might wait for the same API server
		asking.Go(func() { observeForwarder(ctx, &f, o.Forwarder) })
	}
	client, err := kube()
	observeCluster(ctx, &f, client, err, o.Forwarder.Timeout)
	asking.Wait()
	files(f.Settings, f.Validities)
	f.DataDir = dataDir(f.Settings.Server.DataDir)
	observeBus(ctx, &f, o.Forwarder.Timeout)
	return f
}

// observeCluster collects the facts about the cluster. The timeout applies to each request to the
// API server. If there is no client configuration, err is the reason.
func observeCluster(ctx context.Context, f *check.Facts, kube *rest.Config, err error, timeout time.Duration) {
	if err == nil {
		f.Validities = credentials(kube)
		err = kubeconfig.FollowToken(kube, slog.New(slog.DiscardHandler)) // the report has all errors
	}
	var c *cluster
	if err == nil {
		c, err = newCluster(kube, timeout)
	}
	namespace := f.Settings.Leader.Namespace
	if err == nil && namespace == "" && f.Settings.Fleet.Source() == "" {
		if namespace, err = kubeconfig.Namespace(); err != nil {
			err = fmt.Errorf("find the namespace of the lease: %w; set KUBERELAY_LEASE_NAMESPACE", err)
		}
	}
	if f.KubeErr = err; err != nil {
		return
	}
	f.Server, f.Validities[check.ServerCertificate] = c.server(ctx)
	f.Server.Err = deadline.Explain(ctx, f.Server.Err, timeout)
	if f.Server.Err != nil {
		return
	}
	f.Selection, f.SelectionErr = relay.Explain(ctx, relay.Config{Settings: f.Settings, Kube: kube}, explain.Question{})
	if f.SelectionErr == nil {
		f.Lists = c.lists(ctx, f.Settings.Watch, f.Selection)
	}
	f.Lease = c.lease(ctx, f.Settings.Leader, namespace)
	f.Rights = c.rights(ctx, f.NeededRights())
}

func observeForwarder(ctx context.Context, f *check.Facts, at client.Address) {
	c, err := at.Connect(f.Settings.Operations)
	if err == nil {
		name := ""
		if f.Settings.Fleet.Source() != "" {
			name = f.Settings.Event.ClusterName
		}
		d, failed := c.Status(ctx, name)
		if err = failed; err == nil {
			f.Forwarder = &d
		}
	}
	f.ForwarderErr, f.TokenNeeded, f.TokenNotReviewed = err, errors.Is(err, client.ErrNoToken), errors.Is(err, client.ErrNotReviewed)
}

// observeBus inspects the bus and the cluster's data on it. The whole inspection takes no longer than
// the timeout.
func observeBus(ctx context.Context, f *check.Facts, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cfg := f.Settings
	if cfg.Event.ClusterName == "" {
		cfg.Event.ClusterName = f.Server.UID
	}
	switch {
	case cfg.Event.Sink == config.SinkStdout, f.Pre && cfg.BuiltInServer():
	case cfg.Event.Sink == config.SinkKafka:
		cfg.Event.ClusterName = cmp.Or(cfg.Event.ClusterName, "unknown") // the inspection needs a name, and this one has no claim
		var watched []schema.GroupResource
		for _, r := range f.Selection.Watched() {
			watched = append(watched, r.Resource.GroupResource())
		}
		f.Kafka, f.BusErr = sinks.InspectKafka(ctx, cfg, watched)
	default:
		f.NATS, f.BusErr = sinks.InspectNATS(ctx, cfg)
		if !f.NATS.TLSUntil.IsZero() {
			f.Validities[check.BusCertificate] = []check.Validity{{What: "the certificate of the NATS server", From: f.NATS.TLSFrom, Until: f.NATS.TLSUntil}}
		}
	}
	f.BusErr = deadline.Explain(ctx, f.BusErr, timeout)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/fleet"
	"github.com/kuberelay/kuberelay/internal/kubeconfig"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/page"
	"github.com/kuberelay/kuberelay/internal/relay"
	"github.com/kuberelay/kuberelay/internal/status"
	"github.com/kuberelay/kuberelay/internal/trace"
)

// engine copies one cluster or several. 'forwarder run' runs an engine.
type engine interface {
	Run(ctx context.Context) error
	Checks() []operations.Check
}

var _, _ engine = (*relay.Relay)(nil), (*fleet.Fleet)(nil)

// newEngine returns the engine for the settings, and sets the endpoints for its status, its traces,
// and the status page. The streams of the page end when done is closed.
func newEngine(c relay.Config, endpoints *operations.Endpoints, done <-chan struct{}) (engine, error) {
	if c.Settings.Fleet.Source() != "" {
		return newFleet(c, endpoints, done)
	}
	published := new(page.Recent)
	if c.Settings.Operations.StatusPage {
		c.Published = published.Add
	}
	f, err := relay.New(c)
	if err != nil {
		return nil, err
	}
	endpoints.Status = func(url.Values) (any, error) { return judged(f.Status()), nil }
	endpoints.Trace = func(query url.Values) (any, error) {
		k, err := tracedKey(query)
		if err != nil {
			return nil, err
		}
		return judgeTrace(f.Trace(k), k), nil
	}
	if c.Settings.Operations.StatusPage {
		endpoints.Page = page.New(page.Config{View: func(string) (status.Document, *page.Recent) { return judged(f.Status()), published }, Done: done})
	}
	return f, nil
}

// newFleet returns the engine for several clusters.
func newFleet(c relay.Config, endpoints *operations.Endpoints, done <-chan struct{}) (engine, error) {
	from, err := finder(c.Settings, "forwarder", c.Logger).Source()
	if err != nil {
		return nil, &config.Error{Err: err}
	}
	of, recents := fleet.Config{Relay: c, Source: from, Metrics: endpoints.Metrics}, new(page.Recents)
	if c.Settings.Operations.StatusPage {
		of.Published = func(cluster string) func(event.Key, event.Type, string, time.Time, time.Time) {
			return recents.Of(cluster).Add
		}
		of.Gone = recents.Forget
	}
	f := fleet.New(of)
	endpoints.Metrics = f
	statusAt := func(cluster string) (status.Document, error) {
		if cluster == "" {
			return judged(f.Status()), nil
		}
		d, err := f.ClusterStatus(cluster)
		return judged(d), err
	}
	endpoints.Status = func(query url.Values) (any, error) { return statusAt(query.Get("cluster")) }
	if c.Settings.Operations.StatusPage {
		none := new(page.Recent)
		endpoints.Page = page.New(page.Config{Several: true, Done: done, View: func(cluster string) (status.Document, *page.Recent) {
			d, err := statusAt(cluster)
			switch {
			case cluster == "":
				return d, nil
			case err != nil: // the document contains the error
				return d, none
			}
			return d, recents.Of(cluster)
		}})
	}
	endpoints.Trace = func(query url.Values) (any, error) {
		name := query.Get("cluster")
		if name == "" {
			return nil, errors.New("the forwarder copies several clusters: set the parameter cluster to the name of one")
		}
		k, err := tracedKey(query)
		if err != nil {
			return nil, err
		}
		t, err := f.Trace(name, k)
		return judgeTrace(t, k), err
	}
	return f, nil
}

// finder returns the Finder that a command uses to connect to the cluster.
func finder(cfg config.Config, command string, log *slog.Logger) kubeconfig.Finder {
	v, _ := builtFrom()
	return kubeconfig.Finder{Settings: cfg, UserAgent: "kuberelay-" + command + "/" + v, Logger: log}
}

// clusterFlag adds the flag --cluster, which names one of several clusters.
func clusterFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "cluster", "", "`name` of one cluster, if the forwarder copies several")
}

// selectCluster sets the name of one of several clusters in the settings. It does nothing if name is
// "".
func selectCluster(cfg *config.Config, name string) error {
	if name == "" {
		return nil
	}
	if cfg.Fleet.Source() == "" {
		return &config.Error{Err: fmt.Errorf("--cluster=%q requires a forwarder of several clusters, but no source of clusters is set; see docs/fleet.md", name)}
	}
	cfg.Event.ClusterName = name
	return nil
}

// tracedKey returns the key of the object in a query of 'forwarder trace'.
func tracedKey(query url.Values) (event.Key, error) {
	gr := schema.ParseGroupResource(query.Get("resource"))
	k := event.Key{Group: gr.Group, Resource: gr.Resource, Namespace: query.Get("namespace"), Name: query.Get("name")}
	if k.Resource == "" || k.Name == "" {
		return k, errors.New("set the parameters resource (as in deployments.apps), name, and, if the object has one, namespace")
	}
	return k, nil
}

func judgeTrace(f trace.Forwarder, k event.Key) trace.Forwarder {
	return f.Judged(trace.Object{Resource: k.GroupResource().String(), Namespace: k.Namespace, Name: k.Name}, time.Now())
}

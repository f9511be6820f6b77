// Package observe collects the facts of package trace about one object: from the API server, from a
// running forwarder, from the bus, and from a consumer of the bus.
//
// It only reads. A fact that cannot be collected is an error in the document, and does not affect the
// others. The document has no content of the object.
package observe

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/kubeconfig"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/operations/client"
	"github.com/kuberelay/kuberelay/internal/tail"
	"github.com/kuberelay/kuberelay/internal/trace"
)

// Object names the object to trace.
type Object struct {
	Resource  string        // the resource as the user wrote it
	Selector  tail.Selector // selector of the resource
	Namespace string
	Name      string
	Consumer  string // name of a consumer of the bus, or ""
}

// Trace collects the facts and judges them. find has the settings. at is the address of the forwarder.
// Its timeout also limits each response from the API server and the bus. Trace returns an error only
// if the command line is wrong. All other errors are in the document.
//
// Trace reads the API server before the bus. So if the bus lacks the state that the API server
// returned, the bus is behind.
func (o Object) Trace(ctx context.Context, find kubeconfig.Finder, at client.Address) (trace.Document, error) {
	cfg := find.Settings
	forwarder, err := at.Connect(cfg.Operations)
	if err != nil {
		return trace.Document{}, err
	}
	d := trace.Document{Time: time.Now().UTC(), Cluster: cfg.Event.ClusterName}
	c, err := observeAPIServer(ctx, o, find, at.Timeout)
	if err != nil {
		return d, err
	}
	k := c.key
	d.Object, d.APIServer = trace.Object{Resource: k.GroupResource().String(), Namespace: k.Namespace, Name: k.Name}, c.object
	d.Forwarder = askForwarder(ctx, forwarder, k, d.Cluster)
	d.Cluster = cmp.Or(d.Cluster, d.Forwarder.Cluster, c.uid)
	d.Selection = c.selected(ctx, d.Forwarder)
	d.Forwarder.Selection, d.Forwarder.Verdict = nil, nil
	b := readBus(ctx, cfg, d.Cluster, k, at.Timeout)
	d.Bus, d.Consumer = b.bus, b.progress(ctx, o.Consumer, at.Timeout)
	b.close()
	d.Time = time.Now().UTC()
	return trace.Judge(d), nil
}

// askForwarder requests the trace from a running forwarder. It fails if the forwarder copies another
// cluster. If cluster is "", it accepts any cluster.
func askForwarder(ctx context.Context, c *client.Client, k event.Key, cluster string) trace.Forwarder {
	var f trace.Forwarder
	err := c.Read(ctx, operations.TracePath, url.Values{"resource": {k.GroupResource().String()}, "namespace": {k.Namespace}, "name": {k.Name}, "cluster": {cluster}}, &f)
	if err == nil && cluster != "" && f.Cluster != "" && f.Cluster != cluster {
		err = fmt.Errorf("it forwards the cluster %s, but KUBERELAY_CLUSTER_NAME is %s; use --address to name another forwarder", f.Cluster, cluster)
	}
	if err != nil {
		f = trace.Forwarder{Role: trace.Unreachable, Error: err.Error()}
	}
	f.Address = c.URL().Host
	return f
}

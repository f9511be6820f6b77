package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/relay"
	"github.com/kuberelay/kuberelay/internal/tail"
	"github.com/kuberelay/kuberelay/internal/trace"
)

func newTraceCommand() *cobra.Command {
	var output string
	var t tracer
	cmd := &cobra.Command{
		Use:   "trace RESOURCE/NAME",
		Short: "Show where the last change of an object is, and what it waits for",
		Long: `Trace follows one object from the API server to the bus. It prints the verdict first:
whether the bus has the present state, and if not, why. Then it prints what the API
server has, which setting selects the object or not, what the watch and the queue of the
forwarder have, and the last event on the bus with its position. With --consumer, it
also prints how far a consumer of NATS or a consumer group of Kafka has read.

The resource is written as for kubectl: pod/web, pod web, deployments.apps/web. Trace
asks the API server of the kubeconfig, the bus of this environment, and a running
forwarder, as 'forwarder status' does. It says what does not answer, and shows the
rest. It shows no content of the object.

Exit codes: 0 the bus has the present state, and so has the consumer, 1 it does not, 2
it could not be found out, or wrong command line.`,
		Example: `  forwarder trace pod/web -n shop
  forwarder trace deployments.apps/web -n shop --consumer=inventory
  forwarder trace node/a --address=kuberelay.kuberelay.svc:8080 --output=json | jq .verdict`,
		Args: usage(func(_ *cobra.Command, args []string) error { return t.parse(args) }),
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := trace.Printers()[output]
			if !ok {
				return &usageError{fmt.Errorf("--output=%q: use table or json", output)}
			}
			if flag := cmd.Flags().Lookup("consumer"); flag.Changed && t.consumer == "" {
				return &usageError{errors.New("--consumer is empty: name a NATS consumer or a Kafka group, or leave it out")}
			}
			if t.at.timeout <= 0 {
				return &usageError{errTimeout}
			}
			if _, err := tail.ParseNamespace(t.namespace); err != nil {
				return &usageError{fmt.Errorf("--namespace=%q: %w", t.namespace, err)}
			}
			cfg, err := loadConfig(config.Subscribing)
			if err != nil {
				return err
			}
			if err := selectCluster(&cfg, t.cluster); err != nil {
				return err
			}
			klogOnce.Do(func() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) }) // the document has all errors
			d, err := t.run(cmd.Context(), cfg)
			if err != nil {
				return &usageError{err}
			}
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			if err := write(cmd.OutOrStdout(), d); err != nil {
				return err
			}
			if d.Verdict.Code > 0 {
				return exitCode(d.Verdict.Code)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&t.namespace, "namespace", "n", "default", "the namespace of the object")
	flags.StringVar(&t.consumer, "consumer", "", "name of a NATS consumer or of a Kafka consumer group")
	flags.StringVar(&t.at.address, "address", "", "host:port or URL of the forwarder (default KUBERELAY_LISTEN_ADDR on this machine)")
	flags.StringVarP(&output, "output", "o", "table", "table or json")
	clusterFlag(cmd, &t.cluster)
	t.at.flags(cmd)
	t.at.timeoutFlag(cmd)
	return cmd
}

// tracer collects the facts about one object.
type tracer struct {
	resource, name, namespace, consumer, cluster string
	at                                           statusAddress

	selector tail.Selector
}

// parse reads the arguments.
func (t *tracer) parse(args []string) error {
	switch {
	case len(args) == 1 && strings.Count(args[0], "/") == 1:
		t.resource, t.name, _ = strings.Cut(args[0], "/")
	case len(args) == 2:
		t.resource, t.name = args[0], args[1]
	}
	if t.resource == "" || t.name == "" || strings.Contains(t.name, "/") {
		return errors.New("name one object, such as pod/web or deployments.apps/web")
	}
	var err error
	if t.selector, err = tail.ParseSelector(t.resource); err != nil {
		return fmt.Errorf("%q: %w", t.resource, err)
	}
	if t.selector.IsWildcard() {
		return fmt.Errorf("%q: name one resource, without a wildcard", t.resource)
	}
	return nil
}

// run collects the facts. It asks the API server first, so that the state of its answer is on the
// bus later, or still on the way.
func (t *tracer) run(ctx context.Context, cfg config.Config) (trace.Document, error) {
	forwarder, err := t.at.connect(cfg.Operations, t.at.timeout)
	if err != nil {
		return trace.Document{}, err
	}
	d := trace.Document{Time: time.Now().UTC(), Cluster: cfg.Event.ClusterName}
	c, err := observeObject(ctx, t, cfg)
	if err != nil {
		return d, err
	}
	k := c.key
	d.Object, d.APIServer = trace.Object{Resource: k.GroupResource().String(), Namespace: k.Namespace, Name: k.Name}, c.object
	d.Forwarder = askForwarder(ctx, forwarder, k, d.Cluster)
	d.Cluster = cmp.Or(d.Cluster, d.Forwarder.Cluster, c.uid)
	d.Selection = c.selected(ctx, d.Forwarder)
	d.Forwarder.Selection, d.Forwarder.Verdict = nil, nil
	b := readBus(ctx, cfg, d.Cluster, k, t.at.timeout)
	d.Bus, d.Consumer = b.bus, b.progress(ctx, t.consumer, t.at.timeout)
	b.close()
	d.Time = time.Now().UTC()
	return trace.Judge(d), nil
}

// askForwarder asks a running forwarder of a cluster, "" for any.
func askForwarder(ctx context.Context, c forwarderClient, k event.Key, cluster string) trace.Forwarder {
	var f trace.Forwarder
	err := c.read(ctx, operations.TracePath, url.Values{"resource": {k.GroupResource().String()}, "namespace": {k.Namespace}, "name": {k.Name}, "cluster": {cluster}}, &f)
	if err == nil && cluster != "" && f.Cluster != "" && f.Cluster != cluster {
		err = fmt.Errorf("it forwards the cluster %s, and KUBERELAY_CLUSTER_NAME is %s; name another one with --address", f.Cluster, cluster)
	}
	if err != nil {
		f = trace.Forwarder{Role: trace.Unreachable, Error: err.Error()}
	}
	f.Address = c.at.Host
	return f
}

// traceOf answers the query of askForwarder.
func traceOf(f *relay.Relay, query url.Values) (trace.Forwarder, error) {
	k, err := tracedKey(query)
	if err != nil {
		return trace.Forwarder{}, err
	}
	return judgeTrace(f.Trace(k), k), nil
}

// tracedKey returns the object in a query.
func tracedKey(query url.Values) (event.Key, error) {
	gr := schema.ParseGroupResource(query.Get("resource"))
	k := event.Key{Group: gr.Group, Resource: gr.Resource, Namespace: query.Get("namespace"), Name: query.Get("name")}
	if k.Resource == "" || k.Name == "" {
		return k, errors.New("set resource, as in deployments.apps, and name, and namespace if the object has one")
	}
	return k, nil
}

func judgeTrace(f trace.Forwarder, k event.Key) trace.Forwarder {
	return f.Judged(trace.Object{Resource: k.GroupResource().String(), Namespace: k.Namespace, Name: k.Name}, time.Now())
}

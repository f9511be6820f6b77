package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/publish"
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
whether the bus has the current state, and if not, why. Then it prints what the API
server has, which setting selects the object or not, what the watch and the queue of the
forwarder have, and the last event on the bus with its position. With --consumer, it
also prints how far a consumer of NATS or a consumer group of Kafka has read.

The resource is written as for kubectl: pod/web, pod web, deployments.apps/web. Trace
asks the API server of the kubeconfig, the bus of this environment, and a running
forwarder, as 'forwarder status' does. It says what does not answer, and shows the
rest. It shows no content of the object.

Exit codes: 0 the bus has the current state, and so has the consumer, 1 it does not, 2
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
	flags.StringVar(&t.at.address, "address", "", addressUsage)
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

// run collects the facts. It reads the API server first. So by the time it reads the bus, the state from
// the API server has either arrived or is still in flight.
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

// askForwarder requests the trace from a running forwarder. It fails if the forwarder copies another
// cluster. If cluster is "", it accepts any cluster.
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

// tracedBus is the last event of an object on the bus.
type tracedBus struct {
	reader readable // nil if it could not be opened
	bus    trace.Bus
	last   publish.Delivery
}

func (b tracedBus) close() {
	if b.reader != nil {
		_ = b.reader.Close() // an error is harmless, because nothing is in flight
	}
}

// readBus reads the last event of an object. The timeout limits the time between two messages and not
// the whole read, because on Kafka it reads the whole topic.
func readBus(ctx context.Context, cfg config.Config, cluster string, k event.Key, timeout time.Duration) tracedBus {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	reading := &longwork.Counter{}
	go func() {
		if reading.Stalls(ctx, timeout) {
			cancel(&timeUpError{timeout, context.DeadlineExceeded})
		}
	}()
	b, err := within(ctx, func(ctx context.Context) (tracedBus, error) { return traceBus(ctx, cfg, cluster, k, reading), nil })
	if err != nil {
		b.bus = trace.Bus{State: trace.Unknown, Error: "read the bus: " + err.Error()}
	}
	return b
}

// traceBus reads the last event of an object. If cluster is "", only one cluster on the bus may have
// the object. traceBus does not wait for an unreachable bus, or for a missing stream or topic.
func traceBus(ctx context.Context, cfg config.Config, cluster string, k event.Key, reading *longwork.Counter) tracedBus {
	b := tracedBus{bus: trace.Bus{State: trace.Unknown}}
	fail := func(err error) tracedBus {
		b.bus.Error = explainBus(cfg, err).Error()
		return b
	}
	selector, err := tail.ParseSelector(k.Resource + "." + cmp.Or(k.Group, "core"))
	if err != nil {
		return fail(err)
	}
	p := &tail.Present{Labels: labels.Everything(), Reading: reading, Status: &tail.Status{W: io.Discard}}
	p.Filter = tail.Filter{Resources: []tail.Selector{selector}, Namespaces: []string{k.Namespace}, Names: []string{k.Name}}
	if cluster != "" {
		p.Filter.Clusters = []string{cluster}
	}
	cfg.Event.ClusterName = cluster
	b.reader, err = openReader(ctx, cfg, p.Status, reading)
	if b.bus.Source = p.Status.Source; err != nil {
		return fail(err)
	}
	if err := p.Read(ctx, b.reader, cfg.NATS.SubjectPrefix); err != nil {
		return fail(err)
	}
	if err := p.Err(); err != nil {
		return fail(err)
	}
	objects, removed := p.Objects()
	switch all := slices.Concat(objects, removed); len(all) {
	case 0:
		b.bus.State = trace.Absent
	case 1:
		b.show(all[0])
	default:
		return fail(errors.New("several clusters have it: set KUBERELAY_CLUSTER_NAME"))
	}
	return b
}

func (b *tracedBus) show(o tail.Object) {
	at := func(t time.Time) *time.Time {
		if t = t.UTC(); t.IsZero() {
			return nil
		}
		return &t
	}
	b.last = o.Stored
	b.bus.State, b.bus.Type = trace.Exists, o.Type.Short()
	switch o.Removed {
	case event.Deleted:
		b.bus.State = trace.Deleted
	case event.Deselected:
		b.bus.State = trace.Deselected
	}
	b.bus.UID, b.bus.Version, b.bus.Position, b.bus.Truncated = o.UID, o.Version, o.Stored.Place(), o.Truncated
	b.bus.Time, b.bus.Stored = at(o.Changed), at(o.Stored.Stored)
}

// progress returns how far a consumer has read the bus, or nil if name is "".
func (b tracedBus) progress(ctx context.Context, name string, timeout time.Duration) *trace.Consumer {
	if name == "" {
		return nil
	}
	c := &trace.Consumer{Name: name}
	if b.last.Position == 0 {
		c.Error = "the bus has no event of the object to compare with"
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p, err := b.reader.Progress(ctx, name, b.last.Log)
	if err != nil {
		c.Error = inTime(ctx, err, timeout).Error()
		return c
	}
	c.Event, c.Acknowledged, c.Delivered, c.Behind = int64(b.last.Position), p.Acknowledged, p.Delivered, p.Behind
	if b.last.Log != (publish.Log{}) {
		c.Event = publish.Offset(b.last.Position)
	}
	switch skips, sure := p.Start.Skips(b.last); {
	case !isConsumed(p.Filters, b.last.Subject):
		c.Other = fmt.Sprintf("its filter %s does not match the subject %s", strings.Join(p.Filters, ", "), b.last.Subject)
	case skips != "" && sure:
		c.Other = skips
	case skips != "":
		c.Error = skips
	}
	return c
}

// isConsumed reports whether a consumer with these filters receives the messages of a subject.
func isConsumed(filters []string, subject string) bool {
	return len(filters) == 0 || slices.ContainsFunc(filters, func(filter string) bool { return server.SubjectMatchesFilter(subject, filter) })
}

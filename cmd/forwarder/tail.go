package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/internal/tail"
)

func newTailCommand() *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print the events on the bus as they come",
		Long: `Tail reads the NATS stream or the Kafka topics as any subscriber does and prints
one line per event: time, type, resource, namespace/name, version and cause. It
needs no cluster, and changes nothing. It begins now, unless --since, --last or
--from-start say otherwise.

It connects to KUBERELAY_NATS_URL, or else to KUBERELAY_NATS_LISTEN, where the
built-in server of a forwarder on this machine is; with KUBERELAY_SINK=kafka to
KUBERELAY_KAFKA_BROKERS, where only events of one object are in order. It shows all
clusters on the bus, or those of --cluster, or else the one of KUBERELAY_CLUSTER_NAME.
While the bus cannot be reached it says so and waits; after an interruption it goes on
where it was.

With --diff there is beneath each update a unified diff of the object as YAML, from the
bus alone, whatever KUBERELAY_DATA is; with --output=json each event of an object has the
data that it has with KUBERELAY_DATA=change: object, previous and patch (RFC 6902), the
last two null where the state before is not known. It keeps the last state of every
object that it sees in memory, compressed. What an object was before tail began is asked
of NATS when the object is first updated; on Kafka, where one cannot ask, everything that
the topics hold before the beginning is read first, once. --skip-past does without.`,
		Example: `  forwarder tail --resource=pods,deployments.apps --namespace=default
  forwarder tail --last --resource=Widget.example.com
  forwarder tail --cluster=management,workload-1 --resource=clusters.cluster.x-k8s.io
  forwarder tail --diff --since=10m --namespace=shop
  forwarder tail --from-start --output=json | jq .subject
  forwarder tail --diff --output=json | jq -c 'select(.data.patch) | [.subject, .data.patch]'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := f.tailing(cmd)
			if err != nil {
				return &usageError{fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
			}
			cfg, err := loadConfig(config.Subscribing)
			if err != nil {
				return err
			}
			return t.run(cmd.Context(), cfg)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&f.resources, "resource", nil, "only these `resources`, of any version: pods, deployments.apps, *.apps, Deployment; without a group, of any group")
	flags.StringSliceVar(&f.clusters, "cluster", nil, "only these `clusters`, by their names on the bus; * for all, whatever KUBERELAY_CLUSTER_NAME says")
	flags.StringSliceVarP(&f.namespaces, "namespace", "n", nil, "only objects in these `namespaces`")
	flags.StringVar(&f.since, "since", "", "begin with what the bus took in the last so much `time`, as 10m, or since one, as 2026-03-01T15:04:05Z")
	flags.BoolVar(&f.last, "last", false, "begin with the last event of every object, which is its present state, or its delete")
	flags.BoolVar(&f.fromStart, "from-start", false, "begin with the oldest event on the bus")
	flags.BoolVar(&f.diff, "diff", false, "show what each update changed")
	flags.BoolVar(&f.skipPast, "skip-past", false, "with --diff, do not look for what objects were before the beginning: the first update of each has no diff then")
	flags.IntVar(&f.count, "count", 0, "end after so many events; 0 for never")
	flags.StringVarP(&f.output, "output", "o", "text", "text, or json for the whole event as structured CloudEvent")
	flags.StringVar(&f.color, "color", "auto", "auto, always or never; auto is on a terminal, unless NO_COLOR is set")
	return cmd
}

// tailFlags is the command line of tail.
type tailFlags struct {
	resources, clusters, namespaces []string
	since                           string
	last, fromStart, diff, skipPast bool
	count                           int
	output, color                   string
}

// tailing checks the flags.
func (f *tailFlags) tailing(cmd *cobra.Command) (*tailing, error) {
	filter, err := f.filter(cmd)
	if err != nil {
		return nil, err
	}
	t := &tailing{stdout: cmd.OutOrStdout(), status: tailStatus{w: cmd.ErrOrStderr()}, filter: filter, count: f.count, anyCluster: f.allClusters()}
	if t.from, t.since, err = f.begin(cmd, time.Now()); err != nil {
		return nil, err
	}
	if f.count < 0 {
		return nil, fmt.Errorf("--count=%d: use a number of events, or 0 for no end", f.count)
	}
	color, err := f.useColor(isTerminal(t.stdout))
	if err != nil {
		return nil, err
	}
	text := &tail.Text{Color: color}
	switch f.output {
	case "text":
		t.line = func(e tail.Event) ([]byte, error) { return []byte(text.Line(e)), nil }
		t.diff = func(e tail.Event, c tail.Change) ([]byte, error) { return []byte(text.LineAndDiff(e, c)), nil }
	case "json":
		t.line, t.diff = tail.Event.JSON, tail.Event.JSONWithPatch
	default:
		return nil, fmt.Errorf("--output=%q: use text or json", f.output)
	}
	switch {
	case f.diff:
		t.states = tail.NewStates()
		t.skipPast = f.skipPast
	case f.skipPast:
		return nil, errors.New("--skip-past is for --diff")
	}
	return t, nil
}

// begin is where to begin, now being given.
func (f *tailFlags) begin(cmd *cobra.Command, now time.Time) (publish.From, time.Time, error) {
	var used []string
	for _, name := range []string{"since", "last", "from-start"} {
		if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() != "false" {
			used = append(used, "--"+name)
		}
	}
	switch {
	case len(used) > 1:
		return 0, time.Time{}, fmt.Errorf("%s cannot be used together", strings.Join(used, " and "))
	case f.last:
		return publish.FromLast, time.Time{}, nil
	case f.fromStart:
		return publish.FromStart, time.Time{}, nil
	case len(used) == 0:
		return publish.FromNow, time.Time{}, nil
	}
	since, err := time.Parse(time.RFC3339, f.since)
	if err != nil {
		ago, err := time.ParseDuration(f.since)
		if err != nil {
			return 0, time.Time{}, fmt.Errorf("--since=%q: use a duration in hours, minutes and seconds, as 10m or 24h, or a time, as 2026-03-01T15:04:05Z", f.since)
		}
		since = now.Add(-ago)
	}
	if !since.Before(now) {
		return 0, time.Time{}, fmt.Errorf("--since=%q is not in the past; without --since tail begins now", f.since)
	}
	return publish.FromTime, since, nil
}

func (f *tailFlags) filter(cmd *cobra.Command) (tail.Filter, error) {
	var filter tail.Filter
	for name, values := range map[string][]string{"resource": f.resources, "cluster": f.clusters, "namespace": f.namespaces} {
		if cmd.Flags().Changed(name) && len(values) == 0 { // a variable of a script that is not set
			return filter, fmt.Errorf("--%s is empty: name at least one, or leave it out", name)
		}
	}
	for _, s := range f.resources {
		selector, err := tail.ParseSelector(s)
		if err != nil {
			return filter, fmt.Errorf("--resource=%q: %w", s, err)
		}
		filter.Resources = append(filter.Resources, selector)
	}
	if !f.allClusters() {
		for _, s := range f.clusters {
			name, err := tail.ParseCluster(s)
			if err != nil {
				return filter, fmt.Errorf("--cluster=%q: %w", s, err)
			}
			filter.Clusters = append(filter.Clusters, name)
		}
	}
	for _, s := range f.namespaces {
		ns, err := tail.ParseNamespace(s)
		if err != nil {
			return filter, fmt.Errorf("--namespace=%q: %w", s, err)
		}
		filter.Namespaces = append(filter.Namespaces, ns)
	}
	return filter, nil
}

// allClusters tells that all are asked for by name.
func (f *tailFlags) allClusters() bool { return slices.Equal(f.clusters, []string{"*"}) }

// useColor heeds https://no-color.org, which leaves the last word to the command
// line.
func (f *tailFlags) useColor(terminal bool) (bool, error) {
	switch f.color {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto":
		return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal, nil
	}
	return false, fmt.Errorf("--color=%q: use auto, always or never", f.color)
}

// tailing is one run of tail.
type tailing struct {
	stdout io.Writer
	status tailStatus
	filter tail.Filter
	from   publish.From
	since  time.Time
	line   func(tail.Event) ([]byte, error)
	count  int // 0 for no end

	states   *tail.States // nil without --diff
	skipPast bool
	noAnswer bool // the bus did not say what was before an event
	diff     func(tail.Event, tail.Change) ([]byte, error)

	anyCluster bool // whatever is configured

	printed int
}

// errEnough ends a subscription after the events that were asked for.
var errEnough = errors.New("enough")

// readable is a bus as tail needs it.
type readable interface {
	Subscribe(ctx context.Context, o publish.SubscribeOptions, yield func(*event.Message, publish.Delivery) error) error
	Close() error
}

var _, _ readable = (*nats.Bus)(nil), (*reader.Bus)(nil)

// run blocks until ctx ends, enough is printed, or the bus cannot be read.
func (t *tailing) run(ctx context.Context, cfg config.Config) error {
	cfg.Event.ClusterName = t.cluster(cfg.Event.ClusterName)
	bus, err := t.open(ctx, cfg)
	if err != nil {
		return busError(err)
	}
	defer func() { _ = bus.Close() }() // nothing is on its way
	options := publish.SubscribeOptions{
		Filters: t.filter.Subjects(cfg.NATS.SubjectPrefix),
		From:    t.from,
		Since:   t.since,
		Notify:  t.status.notify,
		Foreign: t.status.foreign,
	}
	if t.states != nil {
		t.remember(ctx, bus, &options)
	}
	err = bus.Subscribe(ctx, options, t.print)
	if errors.Is(err, errEnough) || isClosedPipe(err) {
		return nil
	}
	return busError(err)
}

// cluster makes the configured cluster the one that is shown unless others are asked
// for, and gives the one to open the bus for, "" for several.
func (t *tailing) cluster(configured string) string {
	if len(t.filter.Clusters) == 0 && configured != "" && !t.anyCluster {
		t.filter.Clusters = []string{configured}
		t.status.say("only events of the cluster %s, as KUBERELAY_CLUSTER_NAME says; --cluster=* shows all", strconv.Quote(configured))
	}
	if len(t.filter.Clusters) == 1 {
		return t.filter.Clusters[0]
	}
	return ""
}

// open opens the bus without a log: status tells what a person needs.
func (t *tailing) open(ctx context.Context, cfg config.Config) (readable, error) {
	switch cfg.Event.Sink {
	case config.SinkKafka:
		t.status.source = "topic " + cfg.Kafka.Topic
		return reader.Open(readerOptions(cfg, nil))
	case config.SinkNATS:
	default:
		return nil, &usageError{fmt.Errorf("KUBERELAY_SINK is %s, which cannot be read back: tail reads NATS or Kafka; unset it", cfg.Event.Sink)}
	}
	if len(cfg.NATS.URLs) == 0 {
		url, err := builtInURL(cfg.Server.Listen)
		if err != nil {
			return nil, err
		}
		cfg.NATS.URLs = []string{url}
		t.status.hint = builtInHint
	}
	t.status.source = "stream " + cfg.NATS.Stream
	options := natsOptions(cfg, cfg.Event.ClusterName, nil, nil, nil)
	options.ReadOnly = true
	return nats.Connect(ctx, options)
}

// builtInURL is where the built-in server of a forwarder on this machine listens.
func builtInURL(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	if port == "0" {
		return "", &usageError{errors.New("KUBERELAY_NATS_LISTEN has port 0, which stands for any: name the server in KUBERELAY_NATS_URL")}
	}
	switch ip := net.ParseIP(host); {
	case host == "" || ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip.Equal(net.IPv6unspecified):
		host = "::1"
	}
	return "nats://" + net.JoinHostPort(host, port), nil
}

// isClosedPipe tells that nobody reads on, as when the output goes to head.
func isClosedPipe(err error) bool {
	return slices.ContainsFunc([]error{syscall.EPIPE, io.ErrClosedPipe, os.ErrClosed}, func(closed error) bool { return errors.Is(err, closed) })
}

func eventOf(m *event.Message, d publish.Delivery) tail.Event {
	return tail.Event{Message: m, Cluster: d.Cluster, Stored: d.Stored, Subject: d.Subject, Position: d.Position}
}

func (t *tailing) show(e tail.Event) ([]byte, error) {
	if t.states == nil {
		return t.line(e)
	}
	return t.diff(e, t.states.Change(e))
}

func (t *tailing) print(m *event.Message, d publish.Delivery) error {
	e := eventOf(m, d)
	if !t.filter.Match(e) {
		return nil
	}
	line, err := t.show(e)
	if err != nil {
		t.status.foreign(d, err)
		return nil
	}
	if _, err := t.stdout.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("print event %q: %w", m.ID, err)
	}
	t.printed++
	if t.printed == t.count {
		return errEnough
	}
	return nil
}

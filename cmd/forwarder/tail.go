package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/sinks/subscriber"
	"github.com/kuberelay/kuberelay/internal/tail"
)

func newTailCommand() *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print the events on the bus as they arrive",
		Long: `Tail reads the NATS stream or the Kafka topics as any subscriber does. It prints a line
for each event: time, type, resource, namespace/name, version, and cause. It does not
connect to the cluster, and changes nothing. It starts with new events, unless --since,
--last, or --from-start is set. It keeps waiting for events, unless --no-follow is set.

It shows the clusters that --cluster names, or else the cluster of KUBERELAY_CLUSTER_NAME,
or else all clusters on the bus. If the bus is unreachable, it says so and waits. After an
interruption, it resumes where it stopped. On Kafka, only the events of one object are in
order. 'forwarder help connecting' says how it finds the bus.

With --diff, it prints a unified diff of the object as YAML below each update. With --diff
and --output=json, the data has the form of KUBERELAY_DATA=change: object, previous, and
patch (RFC 6902). A diff needs the previous state, so tail keeps the last state of each
object in memory, compressed. Unless --skip-past is set, it reads older states from the
bus: on NATS when an object is first updated, on Kafka all of them before it prints.`,
		Example: `  forwarder tail --resource=pods,deployments.apps --namespace=default
  forwarder tail --last --resource=Widget.example.com
  forwarder tail --diff --since=10m --namespace=shop
  forwarder tail --from-start --output=json | jq .subject
  forwarder tail --diff --output=json | jq -c 'select(.data.patch) | [.subject, .data.patch]'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer showProgress(cmd, longwork.Work{Name: "reading the earlier events", Unit: "records", Measure: f.past.Measure})()
			p, err := f.printer(cmd)
			if err != nil {
				return &config.Error{Err: fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
			}
			cfg, err := loadConfig(config.Subscribing)
			if err != nil {
				return err
			}
			return unlessStopped(cmd.Context(), f.run(cmd.Context(), cfg, p))
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&f.resources, "resource", nil, "only these `resources`, in any version: pods, deployments.apps, *.apps, Deployment; a name without a group selects in all groups")
	f.addFlags(flags)
	flags.StringVar(&f.since, "since", "", "start with the events that the bus stored since this `time`: a duration before now, such as 10m, or a time, such as 2026-03-01T15:04:05Z")
	flags.BoolVar(&f.last, "last", false, "start with the last event of every object, which is its current state or its delete")
	flags.BoolVar(&f.fromStart, "from-start", false, "start with the oldest event on the bus")
	flags.BoolVar(&f.noFollow, "no-follow", false, "with --since, --last, or --from-start, exit at the current end of the bus")
	flags.BoolVar(&f.diff, "diff", false, "show what each update changed")
	flags.BoolVar(&f.points, "points", false, "show consistency points too")
	flags.BoolVar(&f.skipPast, "skip-past", false, "with --diff, do not read the states before the start: the first update of each object then has no diff")
	flags.IntVar(&f.count, "count", 0, "exit after this number of events; 0 for never")
	flags.StringVarP(&f.output, "output", "o", "text", "text, or json for the whole event as a structured CloudEvent")
	flags.StringVar(&f.color, "color", "auto", "auto, always, or never; auto uses color on a terminal, unless NO_COLOR is set")
	return cmd
}

type tailFlags struct {
	selection
	since                           string
	last, fromStart, diff, skipPast bool
	points, noFollow                bool
	count                           int
	output, color                   string

	past longwork.Counter // counts the records that --diff reads before the start, on Kafka
}

// printer checks the flags and returns the printer that they describe.
func (f *tailFlags) printer(cmd *cobra.Command) (*tail.Printer, error) {
	p := &tail.Printer{
		Out: cmd.OutOrStdout(), Status: tail.Status{W: cmd.ErrOrStderr()},
		Count: f.count, JSON: f.output == "json", Diff: f.diff, SkipPast: f.skipPast,
	}
	var err error
	if p.Filter, err = f.filter(cmd.Flags(), "--resource="); err != nil {
		return nil, err
	}
	p.Filter.Points, p.ToEnd = f.points, f.noFollow
	if p.From, p.Since, err = f.begin(cmd, time.Now()); err != nil {
		return nil, err
	}
	if f.count < 0 {
		return nil, fmt.Errorf("--count=%d: use a number of events, or 0 for no end", f.count)
	}
	if p.Color, err = f.useColor(isTerminal(p.Out)); err != nil {
		return nil, err
	}
	switch {
	case f.output != "text" && f.output != "json":
		return nil, fmt.Errorf("--output=%q: use text or json", f.output)
	case f.skipPast && !f.diff:
		return nil, errors.New("--skip-past requires --diff")
	case f.noFollow && p.From == publish.FromNow:
		return nil, errors.New("--no-follow requires --since, --last, or --from-start: without one of them, tail starts with new events")
	}
	return p, nil
}

// begin returns the position from which to read the bus. now is the current time.
func (f *tailFlags) begin(cmd *cobra.Command, now time.Time) (publish.From, time.Time, error) {
	var used []string
	for _, flag := range []struct {
		name string
		used bool
	}{{"--since", cmd.Flags().Changed("since")}, {"--last", f.last}, {"--from-start", f.fromStart}} {
		if flag.used {
			used = append(used, flag.name)
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
			return 0, time.Time{}, fmt.Errorf("--since=%q: use a duration in hours, minutes, and seconds, such as 10m or 24h, or a time, such as 2026-03-01T15:04:05Z", f.since)
		}
		since = now.Add(-ago)
	}
	if !since.Before(now) {
		return 0, time.Time{}, fmt.Errorf("--since=%q is not in the past; without --since, tail starts now", f.since)
	}
	return publish.FromTime, since, nil
}

// useColor reports whether to use color. It follows https://no-color.org, but --color has precedence.
func (f *tailFlags) useColor(terminal bool) (bool, error) {
	switch f.color {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto":
		return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal, nil
	}
	return false, fmt.Errorf("--color=%q: use auto, always, or never", f.color)
}

// run prints events until ctx ends, it has printed enough events, or it can't read the bus.
func (f *tailFlags) run(ctx context.Context, cfg config.Config, p *tail.Printer) error {
	cfg.Event.ClusterName = f.cluster(cfg.Event.ClusterName, &p.Filter, &p.Status)
	bus, err := subscriber.Open(ctx, cfg, &p.Status, &f.past)
	if err != nil {
		return err
	}
	defer func() { _ = bus.Close() }() // an error is harmless, because nothing is in flight
	var looking sync.WaitGroup
	defer looking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	looking.Go(func() { sayAbsent(ctx, cfg, p) })
	err = p.Run(ctx, bus, cfg.NATS.SubjectPrefix)
	if err == nil && p.ToEnd {
		looking.Wait()
	}
	return subscriber.Explain(cfg, err)
}

// sayAbsent tells the user which selected names have no event on the bus. It opens a separate
// connection, because on Kafka it might have to read whole topics.
func sayAbsent(ctx context.Context, cfg config.Config, p *tail.Printer) {
	if len(p.Filter.Clusters)+len(p.Filter.Resources)+len(p.Filter.Namespaces) == 0 {
		return
	}
	cfg.Event.ClusterName = "" // so that a sentence can name the other clusters
	bus, err := subscriber.Open(ctx, cfg, &tail.Status{}, nil)
	if err != nil {
		return // the printer fails with the same error
	}
	defer func() { _ = bus.Close() }() // an error is harmless, because nothing is in flight
	sentences, _, err := findAbsent(ctx, bus, cfg, p.Status.Source, p.Filter)
	if err != nil {
		return // the printer reports problems of the bus
	}
	for _, s := range sentences {
		p.Status.Say("%s", s)
	}
}

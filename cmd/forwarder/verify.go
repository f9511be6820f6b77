package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/relay"
	"github.com/kuberelay/kuberelay/internal/shape"
	"github.com/kuberelay/kuberelay/internal/sinks"
	"github.com/kuberelay/kuberelay/internal/sinks/subscriber"
	"github.com/kuberelay/kuberelay/internal/verify"
	"github.com/kuberelay/kuberelay/internal/verify/report"
)

func newVerifyCommand() *cobra.Command {
	var output string
	var settle time.Duration
	var cluster string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the bus with the cluster and print the differences",
		Long: `Verify reads the whole NATS stream or all Kafka topics, rebuilds the state of every
object, and compares it with the cluster. It prints the objects that are missing on the
bus, stale, extra, or different in their data, and the events that are out of order or
malformed. It changes nothing. It has its own code for parsing events and for deciding
what the bus must have, so that it does not repeat a bug of the forwarder.

Run it with the configuration of the forwarder that you verify. The forwarder can be
running. If the bus has a consistency point of a resource, verify lists the resource at
exactly that version, and reports a difference at once. For later changes, and for
resources without a point, it waits up to --settle for the events to arrive. It compares
the values of Secrets only if KUBERELAY_REDACTION_KEY_FILE is set. If the forwarder copies
several clusters, --cluster names the one to compare. 'forwarder help connecting' says how
verify finds the cluster and the bus.

Exit codes: 0 no difference; 1 differences; 2 verify could not read all of the bus and
the cluster, or wrong command line or configuration.`,
		Example: `  forwarder verify
  forwarder verify --settle=1m --output=json | jq '.problems[] | select(.problem == "missing")'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := map[string]func(report.Report, io.Writer) error{
				"table": report.Report.WriteTable, "json": report.Report.WriteJSON,
			}[output]
			switch {
			case !ok:
				return &config.Error{Err: fmt.Errorf("--output=%q: use table or json", output)}
			case settle <= 0:
				return &config.Error{Err: fmt.Errorf("--settle=%s: use a time above 0", settle)}
			}
			var reading, comparing longwork.Counter
			stop := showProgress(cmd,
				longwork.Work{Name: "reading the bus", Unit: "messages", Measure: reading.Measure},
				longwork.Work{Name: "comparing with the cluster", Unit: "resources", Measure: comparing.Measure})
			defer stop()
			return configured(cmd, config.Forwarding, func(ctx context.Context, cfg config.Config, log *slog.Logger) error {
				if err := selectCluster(&cfg, cluster); err != nil {
					return err
				}
				found, err := runVerify(ctx, cfg, settle, log, verify.Progress{Reading: &reading, Comparing: &comparing})
				stop()
				if err == nil || len(found.Unlisted) > 0 {
					err = errors.Join(err, write(found, cmd.OutOrStdout()))
				}
				switch {
				case err != nil:
					return cannotCompare(subscriber.Explain(cfg, err))
				case len(found.Unmatched) == len(cfg.Watch.Resources):
					return cannotCompare(fmt.Errorf("KUBERELAY_RESOURCES=%q matches nothing in the cluster, so nothing was compared; check the spelling", strings.Join(cfg.Watch.Resources, ",")))
				case !found.Clean() && output == "table": // the last line of the table is the verdict
					return exitCode(exitFailure)
				case !found.Clean():
					return fmt.Errorf("the bus is %s", found.Summary())
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	clusterFlag(cmd, &cluster)
	cmd.Flags().DurationVar(&settle, "settle", verify.DefaultSettle, "how long to wait for events after the last consistency point")
	return cmd
}

// cannotCompare returns the error of a verify that could not compare. Its exit code is 2.
func cannotCompare(err error) error { return &config.Error{Err: fmt.Errorf("cannot compare: %w", err)} }

func runVerify(ctx context.Context, cfg config.Config, settle time.Duration, log *slog.Logger, progress verify.Progress) (report.Report, error) {
	o := verify.Options{
		Resources: cfg.Watch.Resources, ExcludeResources: cfg.Watch.ExcludeResources, UnlessNamed: config.UnlessNamed(),
		Namespaces: cfg.Watch.Namespaces, ExcludeNamespaces: cfg.Watch.ExcludeNamespaces,
		NamespaceSelector: relay.NamespaceSelector(cfg),
		TellDeselected:    cfg.Watch.OnDeselect == config.OnDeselectPublish, Follow: cfg.Watch.Follow,
		LabelSelector: cfg.Watch.LabelSelector, FieldSelector: cfg.Watch.FieldSelector,
		DeleteRetention: cfg.Work.DeleteRetention, Settle: settle, Progress: progress, Logger: log,
	}
	var err error
	switch { // the readers have no logger, because the report contains their errors
	case cfg.Event.Sink == config.SinkKafka:
		kafka := sinks.KafkaReader(cfg)
		o.Kafka, o.Repeats = &kafka, !cfg.Kafka.Idempotent
	case cfg.Event.Sink != config.SinkNATS:
		return report.Report{}, fmt.Errorf("KUBERELAY_SINK is %s, which this command cannot read: set it to nats or kafka", cfg.Event.Sink)
	default:
		if o.NATS, err = sinks.NATSReader(cfg); err != nil {
			return report.Report{}, err
		}
		o.NATSHistory = cfg.NATS.History
	}
	shapes, err := shape.New(cfg.Content, nil)
	if err != nil {
		return report.Report{}, err
	}
	o.Shape = shapes.Func()
	if o.RedactionKey, err = cfg.Event.RedactionKey(); err != nil {
		return report.Report{}, &config.Error{Err: fmt.Errorf("KUBERELAY_REDACTION_KEY_FILE: %w", err)}
	}
	if o.Kube, err = finder(cfg, "verify", log).Config(ctx); err != nil {
		return report.Report{}, err
	}
	found, err := verify.Run(ctx, o)
	found.Settings = differingSettings(ctx, cfg, found.Cluster)
	return found, err
}

const claimTimeout = 10 * time.Second

// differingSettings returns the variables whose values differ from those of the forwarder. To find them,
// it compares digests with those in the forwarder's claim (docs/events.md). It returns none if it can't
// read the claim. The differences do not affect the result of verify.
func differingSettings(ctx context.Context, cfg config.Config, cluster string) []string {
	if cluster == "" { // the bus could not be opened
		return []string{}
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	cfg.Event.ClusterName = cluster
	claim, err := sinks.LastClaim(ctx, cfg)
	if err != nil {
		return []string{}
	}
	return cfg.Differing(claim.UID, claim.Settings)
}

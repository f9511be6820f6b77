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
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/verify"
)

func newVerifyCommand() *cobra.Command {
	var output string
	var settle time.Duration
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the bus with the cluster and print what differs",
		Long: `Verify reads the whole NATS stream, or the Kafka topics, rebuilds from them the state
of every object, and compares that with the cluster: it prints what is missing on
the bus, stale, extra, different in its data, out of order or malformed. It changes
nothing, and it shares no code with what the forwarder decides by.

It takes the configuration of the forwarder whose work it looks at, and can run
beside it: what is in flight gets the time of --settle to arrive. Without
KUBERELAY_NATS_URL it connects to KUBERELAY_NATS_LISTEN, where the built-in server
of a forwarder on this machine is. The values of Secrets are compared only if
KUBERELAY_REDACTION_KEY_FILE is set.

Exit codes: 0 nothing differs, 1 something does, 2 it could not look, or not
everywhere.`,
		Example: `  forwarder verify
  forwarder verify --settle=1m --output=json | jq '.problems[] | select(.problem == "missing")'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			write, ok := map[string]func(verify.Report, io.Writer) error{
				"table": verify.Report.WriteTable, "json": verify.Report.WriteJSON,
			}[output]
			switch {
			case !ok:
				return &usageError{fmt.Errorf("--output=%q: use table or json", output)}
			case settle <= 0:
				return &usageError{fmt.Errorf("--settle=%s: use a time above 0", settle)}
			}
			return configured(config.Forwarding, func(ctx context.Context, cfg config.Config, log *slog.Logger) error {
				report, err := runVerify(ctx, cfg, settle, log)
				if err == nil || len(report.Unlisted) > 0 {
					err = errors.Join(err, write(report, cmd.OutOrStdout()))
				}
				switch {
				case err != nil:
					return couldNotLook(explainBus(cfg, err))
				case len(report.Unmatched) == len(cfg.Watch.Resources):
					return couldNotLook(fmt.Errorf("KUBERELAY_RESOURCES=%q matches nothing in the cluster, so nothing was compared; check the spelling", strings.Join(cfg.Watch.Resources, ",")))
				case !report.Clean():
					return fmt.Errorf("the bus is %s", report.Summary())
				}
				return nil
			})(cmd, args)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().DurationVar(&settle, "settle", verify.DefaultSettle, "how long what is in flight may take to arrive")
	return cmd
}

// couldNotLook gives the exit code 2 to whatever kept verify from looking. It cuts
// the chain of err: one that was interrupted has not found that all is well.
func couldNotLook(err error) error {
	return &usageError{errors.New("could not look: " + err.Error())}
}

// explainBus says what to do about a bus that cannot be read at all. Other errors stay
// as they are.
func explainBus(cfg config.Config, err error) error {
	onKafka := cfg.Event.Sink == config.SinkKafka
	switch missing := errors.Is(err, publish.ErrMissing); {
	case missing && onKafka:
		return fmt.Errorf("%w: check KUBERELAY_KAFKA_TOPIC; a forwarder creates the topic when it starts", err)
	case missing:
		return fmt.Errorf("%w: check KUBERELAY_NATS_STREAM; a forwarder creates the stream when it starts", err)
	case !errors.Is(err, verify.ErrUnreachable):
		return err
	case onKafka:
		return fmt.Errorf("%w: check KUBERELAY_KAFKA_BROKERS, and that a broker runs there", err)
	case len(cfg.NATS.URLs) == 0:
		return fmt.Errorf("%w%s", err, builtInHint)
	}
	return fmt.Errorf("%w: check KUBERELAY_NATS_URL, and that a server runs there", err)
}

// builtInHint is what to think of where the built-in server of a forwarder on this
// machine cannot be reached.
const builtInHint = " (is a forwarder running on this machine? KUBERELAY_NATS_URL names another server)"

func runVerify(ctx context.Context, cfg config.Config, settle time.Duration, log *slog.Logger) (verify.Report, error) {
	o := verify.Options{
		Resources: cfg.Watch.Resources, ExcludeResources: cfg.Watch.ExcludeResources, UnlessNamed: config.UnlessNamed(),
		Namespaces: cfg.Watch.Namespaces, ExcludeNamespaces: cfg.Watch.ExcludeNamespaces,
		NamespaceSelector: namespaceSelection(cfg.Watch).Selector,
		TellDeselected:    cfg.Watch.OnDeselect == config.OnDeselectPublish, Follow: cfg.Watch.Follow,
		LabelSelector: cfg.Watch.LabelSelector, FieldSelector: cfg.Watch.FieldSelector,
		DeleteRetention: cfg.Work.DeleteRetention, Settle: settle, Logger: log,
	}
	switch { // without a log: what the bus meets is in the report
	case cfg.Event.Sink == config.SinkKafka:
		kafka := readerOptions(cfg, nil)
		o.Kafka, o.Repeats = &kafka, !cfg.Kafka.Idempotent
	case cfg.Event.Sink != config.SinkNATS:
		return verify.Report{}, fmt.Errorf("KUBERELAY_SINK is %s, which cannot be read back: verify reads NATS or Kafka", cfg.Event.Sink)
	case len(cfg.NATS.URLs) == 0:
		url, err := builtInURL(cfg.Server.Listen)
		if err != nil {
			return verify.Report{}, err
		}
		cfg.NATS.URLs = []string{url}
	}
	o.NATS = natsOptions(cfg, cfg.Event.ClusterName, nil, nil, nil)
	shape, err := newShapes(cfg.Content, noteNoFilterErrors)
	if err != nil {
		return verify.Report{}, err
	}
	o.Shape = shape.function(cfg.Content)
	if cfg.Event.RedactionKeyFile != "" {
		if o.RedactionKey, err = redactionKey(cfg.Event.RedactionKeyFile); err != nil {
			return verify.Report{}, err
		}
	}
	if o.Kube, err = kubeConfig(cfg, "verify", log); err != nil {
		return verify.Report{}, err
	}
	return verify.Run(ctx, o)
}

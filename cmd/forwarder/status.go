package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/relay"
	"github.com/kuberelay/kuberelay/internal/status"
)

// statusOf returns the judged document of a forwarder.
func statusOf(f *relay.Relay) status.Document { return judged(f.Status()) }

// judged completes and judges a document of this process.
func judged(d status.Document) status.Document {
	d.Version, _ = builtFrom()
	return status.Judge(d)
}

const (
	statusInterval = time.Second // between two requests of --wait
	maxAnswerBytes = 64 << 20
	maxReasonBytes = 1 << 10 // of the text of a refusal
)

func newStatusCommand() *cobra.Command {
	var output string
	var wait time.Duration
	var at statusAddress
	var cluster string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether the copy is right, how old it is, and if not, why",
		Long: `Status asks a running forwarder and prints the verdict first: what is wrong, how to fix
it, and where the documentation explains it. Then it prints a line for each resource:
its state, the objects in the cache, the objects that are not published yet (dirty), the
age of the cluster's state that the bus has in full, the last publish, and the last
error. At the end are the bus, the lease and the memory. For a forwarder of several
clusters, it prints a line for each; --cluster shows one of them.

Without --address it asks the forwarder of this environment: KUBERELAY_LISTEN_ADDR on
this machine, or in this pod. The document is also at /api/v1/status.

Exit codes: 0 ok, 1 warning, 2 critical, or the forwarder does not answer, or wrong
command line. With --output=nagios, 3 if the forwarder refuses to answer.`,
		Example: `  forwarder status
  forwarder status --wait=2m
  forwarder status --address=kuberelay.kuberelay.svc:8080 --output=json | jq .verdict`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			write, ok := status.Printers()[output]
			switch {
			case !ok:
				return &usageError{fmt.Errorf("--output=%q: use table, json, nagios or prometheus", output)}
			case wait < 0:
				return &usageError{fmt.Errorf("--wait=%s: use a time above 0", wait)}
			case at.timeout <= 0:
				return &usageError{errTimeout}
			}
			return configured(config.Subscribing, func(ctx context.Context, cfg config.Config, _ *slog.Logger) error {
				c, err := at.connect(cfg.Operations, at.timeout)
				if err != nil {
					return &usageError{err}
				}
				c.cluster = cluster
				ask := c.document
				d, refused := await(ctx, ask, wait)
				unknown := refused && output == "nagios"
				if unknown {
					d.Verdict.Level = status.Unknown
				}
				if err := write(cmd.OutOrStdout(), d); err != nil {
					return err
				}
				switch code := d.Verdict.Level.Code(); {
				case unknown:
					return exitCode(3)
				case code > 0:
					return exitCode(code)
				}
				return nil
			})(cmd, args)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&at.address, "address", "", addressUsage)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json, nagios or prometheus")
	clusterFlag(cmd, &cluster)
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait until the verdict is ok, at most this long")
	cmd.Flags().Lookup("wait").NoOptDefVal = "5m"
	at.flags(cmd)
	at.timeoutFlag(cmd)
	return cmd
}

// unanswered returns the document for the error of a request.
func unanswered(err error) status.Document {
	if errors.Is(err, errNotReviewed) {
		return status.NotReviewed(err, time.Now())
	}
	return status.Unanswered(err, time.Now())
}

// await asks until the verdict is ok, the time is over, or ctx ends. refused means that the last
// answer was not a status document.
func await(ctx context.Context, ask func(context.Context) (status.Document, error), wait time.Duration) (d status.Document, refused bool) {
	over := time.NewTimer(wait)
	defer over.Stop()
	ticker := time.NewTicker(statusInterval)
	defer ticker.Stop()
	for {
		d, err := ask(ctx)
		var refusal *refusalError
		refused = errors.As(err, &refusal)
		if err != nil {
			d = unanswered(err)
		}
		if d.Verdict.Level == status.OK {
			return d, false
		}
		select {
		case <-ctx.Done():
			return d, refused
		case <-over.C:
			return d, refused
		case <-ticker.C:
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/operations/client"
	"github.com/kuberelay/kuberelay/internal/status"
)

// judged adds the version of this process and the verdict to a status document.
func judged(d status.Document) status.Document {
	d.Version, _ = builtFrom()
	return status.Judge(d)
}

func newStatusCommand() *cobra.Command {
	var output string
	var wait time.Duration
	var at client.Address
	var cluster string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether the bus has a correct copy, how old it is, and what is wrong",
		Long: `Status asks a running forwarder. It prints the verdict first: what is wrong, how to fix
it, and where the documentation explains it. Then it prints a line for each resource: its
state, the objects in the cache, the objects that are not published yet (dirty), how long
ago the copy was known to be complete (consistent), the last publish, and the last error.
At the end are the bus, the lease, and the memory. If the forwarder copies several
clusters, status prints a line for each cluster. --cluster shows one of them.

Without --address, status asks the forwarder at KUBERELAY_LISTEN_ADDR on this machine, or
in this pod. The forwarder serves the same document at /api/v1/status.

Exit codes: 0 ok; 1 warning; 2 critical, no response, or wrong command line or
configuration. With --output=nagios, 3 if the forwarder refuses to answer.`,
		Example: `  forwarder status
  forwarder status --wait=2m
  forwarder status --address=kuberelay.kuberelay.svc:8080 --output=json | jq .verdict`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := status.Printers()[output]
			switch {
			case !ok:
				return &config.Error{Err: fmt.Errorf("--output=%q: use table, json, nagios, or prometheus", output)}
			case wait < 0:
				return &config.Error{Err: fmt.Errorf("--wait=%s: use 0 or a time above 0", wait)}
			case at.Timeout <= 0:
				return &config.Error{Err: errTimeout}
			}
			return configured(cmd, config.Subscribing, func(ctx context.Context, cfg config.Config, _ *slog.Logger) error {
				forwarder, err := at.Connect(cfg.Operations)
				if err != nil {
					return &config.Error{Err: err}
				}
				d, refused := forwarder.Await(ctx, cluster, wait)
				code := d.Verdict.Level.Code()
				if refused && output == "nagios" {
					d.Verdict.Level, code = status.Unknown, 3
				}
				return exit(code, write(cmd.OutOrStdout(), d))
			})
		},
	}
	cmd.Flags().SortFlags = false
	addressFlag(cmd, &at)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json, nagios, or prometheus")
	clusterFlag(cmd, &cluster)
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait until the verdict is ok, at most this long")
	cmd.Flags().Lookup("wait").NoOptDefVal = "5m"
	credentialFlags(cmd, &at)
	timeoutFlag(cmd, &at)
	return cmd
}

func addressFlag(cmd *cobra.Command, a *client.Address) {
	cmd.Flags().StringVar(&a.Forwarder, "address", "", "host:port or URL of the forwarder (default: KUBERELAY_LISTEN_ADDR on this machine)")
}

func credentialFlags(cmd *cobra.Command, a *client.Address) {
	cmd.Flags().StringVar(&a.TokenFile, "token-file", "", "file with the bearer token, for a forwarder with KUBERELAY_METRICS_AUTH=true; implies https")
	cmd.Flags().StringVar(&a.CAFile, "ca-file", "", "PEM file with the CA certificates that verify the forwarder's certificate; implies https")
}

// defaultTimeout is how long a command waits for a response. It is short enough that a command reports
// an unresponsive server within 5 seconds.
const defaultTimeout = 4 * time.Second

var errTimeout = errors.New("--timeout: use a time above 0")

func timeoutFlag(cmd *cobra.Command, a *client.Address) {
	cmd.Flags().DurationVar(&a.Timeout, "timeout", defaultTimeout, "how long to wait for a response")
}

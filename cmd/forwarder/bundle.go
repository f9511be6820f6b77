package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/bundle"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/operations/client"
)

// partTimeout limits one request of a bundle. The forwarder has the same limit for its response.
const partTimeout = 30 * time.Second

func newBundleCommand() *cobra.Command {
	var output string
	var noLogs bool
	at := client.Address{Timeout: partTimeout}
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Write a support bundle of a running forwarder",
		Long: `Bundle collects data from a running forwarder and from the bus, and writes a .tar.gz
file for a bug report. The file contains the status, the metrics, the configuration, the
goroutines, a heap profile, the end of the log (at most 1,000 lines and 256 KiB), and the
settings of the stream or the topics. manifest.json lists the files, the versions, and the
missing parts with the reasons.

The bundle contains no object content and no secrets: no passwords, tokens, keys, function
arguments, or memory contents. It does contain names: the log and the errors have names
of objects, and the configuration has names of namespaces, hosts, and files. --no-logs
leaves out the log.

Without --address, bundle asks the forwarder at KUBERELAY_LISTEN_ADDR on this machine.
Unless KUBERELAY_METRICS_AUTH is true, a forwarder serves its log, configuration,
goroutines, and heap profile only to its own machine or pod: run the command there, or
use kubectl port-forward. If KUBERELAY_METRICS_AUTH is true, pass --token-file with a
token that may get /metrics and /debug/support/*. Bundle reads the bus with the settings
of this environment.

Exit codes: 0 everything is in the bundle; 1 a part is missing, or nothing was written;
2 wrong command line or configuration.`,
		Example: `  forwarder bundle
  kubectl --namespace kuberelay exec sts/kuberelay -- /forwarder bundle -o - > bundle.tar.gz
  forwarder bundle --address=localhost:8080 --no-logs -o bundle.tar.gz`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == "-" && isTerminal(cmd.OutOrStdout()) {
				return &config.Error{Err: errors.New("--output=-: standard output is a terminal; redirect it to a file")}
			}
			return configured(cmd, config.Subscribing, func(ctx context.Context, cfg config.Config, _ *slog.Logger) error {
				forwarder, err := at.Connect(cfg.Operations)
				if err != nil {
					return &config.Error{Err: err}
				}
				b := bundle.Collector{
					Forwarder: forwarder, Elsewhere: at.Forwarder != "", Settings: cfg, NoLogs: noLogs, Timeout: partTimeout, Command: versionLine(),
				}.Collect(ctx)
				if err := ctx.Err(); err != nil {
					return fmt.Errorf("interrupted, nothing was written: %w", err)
				}
				messages := cmd.ErrOrStderr()
				if output == "-" {
					err = b.Write(cmd.OutOrStdout())
				} else {
					messages, err = cmd.OutOrStdout(), writeFile(cmp.Or(output, b.Name()+".tar.gz"), b)
				}
				if err == nil {
					err = b.WriteText(messages)
				}
				if err == nil && output != "-" {
					_, err = fmt.Fprintln(messages, "written to", cmp.Or(output, b.Name()+".tar.gz"))
				}
				if err == nil && b.Failed() > 0 {
					return exitCode(exitFailure)
				}
				return err
			})
		},
	}
	cmd.Flags().SortFlags = false
	addressFlag(cmd, &at)
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write, which must not exist, or - for standard output (default kuberelay-bundle-<cluster>-<time>.tar.gz in the current directory)")
	cmd.Flags().BoolVar(&noLogs, "no-logs", false, "leave out the log, which contains names of objects")
	credentialFlags(cmd, &at)
	return cmd
}

// writeFile writes the bundle to a new file that only the current user can read. If writing fails, it
// removes the file.
func writeFile(name string, b bundle.Bundle) (err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	switch {
	case errors.Is(err, os.ErrExist):
		return &config.Error{Err: fmt.Errorf("--output=%q: the file exists; name another one", name)}
	case err != nil:
		return &config.Error{Err: fmt.Errorf("write the bundle: %w; set --output to a file in a writable directory, or to - for standard output", err)}
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(fmt.Errorf("write the bundle: %w", err), os.Remove(name))
		}
	}()
	return b.Write(f)
}

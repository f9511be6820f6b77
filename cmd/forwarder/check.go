package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"

	"github.com/kuberelay/kuberelay/internal/check"
	"github.com/kuberelay/kuberelay/internal/check/observe"
	"github.com/kuberelay/kuberelay/internal/config"
)

func newCheckCommand() *cobra.Command {
	var output, memory, cluster string
	var o observe.Observer
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the cluster, the permissions, and the bus, before or after installing",
		Long: `Check finds out whether a forwarder with this environment can work. It checks the API
server, the permissions, the selected resources, the bus with its stream or topics, the
memory, and whether there is another writer. It prints a line for each check: ok, warning,
failed, or skipped with the reason. A warning or a failure has a fix, and a link to its
section in docs/troubleshooting.md.

If the forwarder copies several clusters, it checks each of them. --cluster selects one.

Run the command with --pre before the installation, and without --pre in the pod of a
forwarder. It only reads: it publishes nothing, takes no lease, and creates no stream or
topic.

Exit codes: 0 ok; 1 a warning; 2 a failure, or wrong command line.`,
		Example: `  forwarder check --pre --memory-limit=256Mi
  forwarder check
  forwarder check --output=json | jq '.checks[] | select(.status == "failed")'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := check.Printers()[output]
			if !ok {
				return &config.Error{Err: fmt.Errorf("--output=%q: use table or json", output)}
			}
			if o.Forwarder.Timeout <= 0 {
				return &config.Error{Err: errTimeout}
			}
			limit, err := memoryLimit(memory, o.Pre)
			if err != nil {
				return &config.Error{Err: err}
			}
			o.MemoryLimit, o.Writer = limit, writerName(os.Getenv)
			o.Version, _ = builtFrom()
			log := slog.New(slog.DiscardHandler) // the report has all errors
			klogOnce.Do(func() { klog.SetSlogLogger(log) })
			settings, err := config.Load(config.Forwarding, contentChecks()...)
			if err == nil {
				if wrong := selectCluster(&settings, cluster); wrong != nil {
					return wrong
				}
			}
			report := o.Report(cmd.Context(), finder(settings, "check", log), err)
			if cmd.Context().Err() != nil {
				return &config.Error{Err: fmt.Errorf("interrupted: %w", cmd.Context().Err())}
			}
			return exit(report.Status.Code(), write(cmd.OutOrStdout(), report))
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&o.Pre, "pre", false, "check before the installation of the forwarder")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().StringVar(&memory, "memory-limit", "", "memory limit of the forwarder's container, such as 256Mi (default: the limit of this container; with --pre, none)")
	clusterFlag(cmd, &cluster)
	credentialFlags(cmd, &o.Forwarder)
	timeoutFlag(cmd, &o.Forwarder)
	return cmd
}

// memoryLimit returns the memory limit of the forwarder in bytes, or 0 if none is known. text is
// the value of --memory-limit. If text is "", the limit is that of this container. If pre is true, this
// container's limit does not count, because the forwarder does not run in this container.
func memoryLimit(text string, pre bool) (int64, error) {
	if text != "" {
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Value() <= 0 {
			return 0, fmt.Errorf("--memory-limit=%q: write it as in a pod, such as 256Mi", text)
		}
		return q.Value(), nil
	}
	limit, err := memlimit.FromCgroup()
	if pre || err != nil || limit > 1<<62 { // without cgroups, there is no limit
		return 0, nil //nolint:nilerror // no limit is known
	}
	return int64(limit), nil
}

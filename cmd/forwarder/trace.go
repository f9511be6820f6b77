package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/operations/client"
	"github.com/kuberelay/kuberelay/internal/tail"
	"github.com/kuberelay/kuberelay/internal/trace"
	"github.com/kuberelay/kuberelay/internal/trace/observe"
)

func newTraceCommand() *cobra.Command {
	var output string
	var o observe.Object
	var cluster string
	var at client.Address
	cmd := &cobra.Command{
		Use:   "trace RESOURCE/NAME",
		Short: "Show whether the bus has the last change of an object, and if not, why",
		Long: `Trace follows one object from the API server to the bus. It prints the verdict first:
whether the bus has the current state, and if not, why. Then it prints the state on the
API server, the setting that selects or excludes the object, the state in the forwarder's
watch and queue, and the last event on the bus with its position. With --consumer, it
also prints how far a NATS consumer or a Kafka consumer group has read.

Write the object as for kubectl: pod/web, pod web, or deployments.apps/web. Trace asks
the API server, the bus, and a running forwarder ('forwarder help connecting'). It names
those that do not respond, and shows the rest. It never shows the content of the object.

Exit codes: 0 the bus and the consumer of --consumer have the current state; 1 one of
them does not; 2 unknown, or wrong command line or configuration.`,
		Example: `  forwarder trace pod/web -n shop
  forwarder trace deployments.apps/web -n shop --consumer=inventory
  forwarder trace node/a --address=kuberelay.kuberelay.svc:8080 --output=json | jq .verdict`,
		Args: usage(func(_ *cobra.Command, args []string) error { return parseObject(&o, args) }),
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := trace.Printers()[output]
			if !ok {
				return &config.Error{Err: fmt.Errorf("--output=%q: use table or json", output)}
			}
			if flag := cmd.Flags().Lookup("consumer"); flag.Changed && o.Consumer == "" {
				return &config.Error{Err: errors.New("--consumer is empty: name a NATS consumer or a Kafka group, or leave it out")}
			}
			if at.Timeout <= 0 {
				return &config.Error{Err: errTimeout}
			}
			if _, err := tail.ParseNamespace(o.Namespace); err != nil {
				return &config.Error{Err: fmt.Errorf("--namespace=%q: %w", o.Namespace, err)}
			}
			cfg, err := loadConfig(config.Subscribing)
			if err != nil {
				return err
			}
			if err := selectCluster(&cfg, cluster); err != nil {
				return err
			}
			log := slog.New(slog.DiscardHandler) // the document has all errors
			klogOnce.Do(func() { klog.SetSlogLogger(log) })
			d, err := o.Trace(cmd.Context(), finder(cfg, "trace", log), at)
			if err != nil {
				return &config.Error{Err: err}
			}
			if cmd.Context().Err() != nil {
				return &config.Error{Err: fmt.Errorf("interrupted: %w", cmd.Context().Err())}
			}
			return exit(d.Verdict.Code, write(cmd.OutOrStdout(), d))
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&o.Namespace, "namespace", "n", "default", "the namespace of the object")
	flags.StringVar(&o.Consumer, "consumer", "", "name of a NATS consumer or of a Kafka consumer group")
	addressFlag(cmd, &at)
	flags.StringVarP(&output, "output", "o", "table", "table or json")
	clusterFlag(cmd, &cluster)
	credentialFlags(cmd, &at)
	timeoutFlag(cmd, &at)
	return cmd
}

// parseObject sets the resource, its selector, and the name of o from the arguments.
func parseObject(o *observe.Object, args []string) error {
	switch {
	case len(args) == 1 && strings.Count(args[0], "/") == 1:
		o.Resource, o.Name, _ = strings.Cut(args[0], "/")
	case len(args) == 2:
		o.Resource, o.Name = args[0], args[1]
	}
	if o.Resource == "" || o.Name == "" || strings.Contains(o.Name, "/") {
		return errors.New("name one object, such as pod/web or deployments.apps/web")
	}
	var err error
	if o.Selector, err = tail.ParseSelector(o.Resource); err != nil {
		return fmt.Errorf("%q: %w", o.Resource, err)
	}
	if o.Selector.IsWildcard() {
		return fmt.Errorf("%q: name one resource, without a wildcard", o.Resource)
	}
	return nil
}

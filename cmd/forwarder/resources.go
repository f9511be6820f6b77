package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/explain"
	"github.com/kuberelay/kuberelay/internal/relay"
)

func newResourcesCommand() *cobra.Command {
	var output string
	var question explain.Question
	cmd := &cobra.Command{
		Use:   "resources [resource...]",
		Short: "Show which resources are watched, and why others are not",
		Long: `Resources asks the API server what it serves and which permissions the forwarder has,
and prints what a forwarder with this configuration watches if it starts now. It prints
a line for each resource that KUBERELAY_RESOURCES or KUBERELAY_EXCLUDE_RESOURCES
matches: the selector that decided, the namespaces, and why the resource is not watched,
or not everywhere. It also lists selectors that match nothing, and API groups whose
discovery fails. It needs no bus, and changes nothing.

With a resource, in any form that kubectl accepts, it prints everything about that
resource, selected or not, and tries to list it. With a resource or with --all,
KUBERELAY_RESOURCES is not required.

Exit codes: 0 whatever is watched, 1 the API server did not answer, 2 wrong command
line or configuration, or rejected credentials.`,
		Example: `  forwarder resources
  forwarder resources widgets.example.com
  forwarder resources --all --output=json | jq '.resources[] | select(.watched == "no")'`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			for _, arg := range args {
				if slices.ContainsFunc(strings.Split(arg, ","), func(s string) bool { return s == "" || strings.ContainsAny(s, " \t\r\n") }) {
					return fmt.Errorf("%q is not the name of a resource; write it as pods, deployments.apps, deployments.v1.apps, Widget.example.com or *.apps", arg)
				}
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			write, ok := map[string]func(explain.Explanation, io.Writer) error{
				"table": explain.Explanation.WriteTable, "json": explain.Explanation.WriteJSON,
			}[output]
			if len(args) > 0 {
				if question.All {
					return &usageError{errors.New("--all and the name of a resource cannot be used together")}
				}
				if output == "table" {
					write = explain.Explanation.WriteAnswers
				}
			}
			if !ok {
				return &usageError{fmt.Errorf("--output=%q: use table or json", output)}
			}
			for _, arg := range args {
				question.Only = append(question.Only, strings.Split(arg, ",")...)
			}
			need := config.Forwarding
			if question.All || len(args) > 0 {
				need = config.Subscribing
			}
			return configured(need, func(ctx context.Context, cfg config.Config, log *slog.Logger) error {
				kube, err := kubeConfig(cfg, "resources", log)
				if err != nil {
					return &usageError{err}
				}
				x, err := relay.Explain(ctx, relay.Config{Settings: cfg, Kube: kube}, question)
				if err != nil {
					return err
				}
				return write(x, cmd.OutOrStdout())
			})(cmd, args)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&question.All, "all", false, "also list the resources that no selector matches")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

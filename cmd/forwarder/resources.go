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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/internal/clientgo/discovery"
	"github.com/kuberelay/kuberelay/internal/clientgo/typed"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/informers"
)

func newResourcesCommand() *cobra.Command {
	var output string
	var question informers.Question
	cmd := &cobra.Command{
		Use:   "resources [resource...]",
		Short: "Show which resources are watched, and of the others why not",
		Long: `Resources asks the API server what it serves and what may be read, and prints what a
forwarder with this configuration would watch if it started now: a line for each
resource that KUBERELAY_RESOURCES or KUBERELAY_EXCLUDE_RESOURCES matches, with the
selector that decided, the namespaces that are covered, and why it is not watched, or
not everywhere. It says which selectors match nothing, and which groups cannot be
asked what they serve. It needs no bus, and changes nothing.

With a resource, in any form that kubectl takes, it tells all about that one, whether
or not it is selected, and tries to list it. For that and for --all
KUBERELAY_RESOURCES need not be set.

Exit codes: 0 whatever is watched, 1 the API server could not be asked, 2 wrong
command line or configuration, credentials that are refused among it.`,
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
			write, ok := map[string]func(informers.Explanation, io.Writer) error{
				"table": writeResources, "json": writeResourcesJSON,
			}[output]
			if len(args) > 0 {
				if question.All {
					return &usageError{errors.New("--all and the name of a resource cannot be used together")}
				}
				if output == "table" {
					write = writeAnswers
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
				x, err := explainResources(ctx, cfg, question, log)
				if err != nil {
					return err
				}
				return write(x, cmd.OutOrStdout())
			})(cmd, args)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&question.All, "all", false, "list also the resources that no selector matches")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// explainResources asks as the forwarder would. What waiting would cure is an error here.
func explainResources(ctx context.Context, cfg config.Config, q informers.Question, log *slog.Logger) (informers.Explanation, error) {
	rc, err := kubeConfig(cfg, "resources", log)
	if err != nil {
		return informers.Explanation{}, &usageError{err}
	}
	wrong := func(err error) error { return &usageError{fmt.Errorf("find the cluster: %w", err)} }
	c := informers.Config{
		Selection: informers.Selection{
			Include: cfg.Watch.Resources, Exclude: cfg.Watch.ExcludeResources, UnlessNamed: config.UnlessNamed(),
		},
		Namespaces: namespaceSelection(cfg.Watch), LabelSelector: cfg.Watch.LabelSelector, FieldSelector: cfg.Watch.FieldSelector, Follow: cfg.Watch.Follow,
	}
	if c.Dynamic, err = dynamic.NewForConfig(rc); err != nil {
		return informers.Explanation{}, wrong(err)
	}
	if c.Discovery, err = discovery.NewDiscoveryClientForConfig(rc); err != nil {
		return informers.Explanation{}, wrong(err)
	}
	reviews, err := typed.NewReviews(rc)
	if err != nil {
		return informers.Explanation{}, wrong(err)
	}
	c.Access = reviews.SelfSubjectAccessReviews()
	x, err := informers.Explain(ctx, c, q)
	if err == nil {
		x.Filter, x.DropFields = cfg.Content.Filter, cfg.Content.DropFields
		return x, nil
	}
	if !apierrors.IsForbidden(err) { // which is not about the cluster's name here
		if permanent := explainAPIServer(rc.Host, err); permanent != nil {
			return informers.Explanation{}, permanent
		}
	}
	// It cuts the chain: one that was interrupted has told nothing.
	return informers.Explanation{}, fmt.Errorf("the API server %s could not be asked: %s", rc.Host, err.Error())
}

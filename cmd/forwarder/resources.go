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
	"k8s.io/apimachinery/pkg/runtime"
	kubediscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/explain"
	"github.com/kuberelay/kuberelay/internal/jsonschema"
	"github.com/kuberelay/kuberelay/internal/relay"
)

func newResourcesCommand() *cobra.Command {
	var output string
	var question explain.Question
	cmd := &cobra.Command{
		Use:   "resources [resource...]",
		Short: "Show which resources are watched, and why others are not",
		Long: `Resources asks the API server what it serves and which permissions the forwarder has,
and prints what a forwarder with this configuration would watch if it started now. It
prints a line for each resource that KUBERELAY_RESOURCES or KUBERELAY_EXCLUDE_RESOURCES
matches: the selector that decided, the namespaces, and, if the resource is not watched
or not in all namespaces, why. It also lists selectors that match nothing, and API groups
whose discovery fails. It does not connect to the bus, and changes nothing.

With a resource, in any form that kubectl accepts, it prints everything about that
resource, selected or not, and tries to list it. With a resource or with --all,
KUBERELAY_RESOURCES is not required.

Exit codes: 0 success, even if nothing is watched; 1 the API server did not respond;
2 wrong command line or configuration, or rejected credentials.`,
		Example: `  forwarder resources
  forwarder resources widgets.example.com
  forwarder resources --all --output=json | jq '.resources[] | select(.watched == "no")'`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			for _, arg := range args {
				if slices.ContainsFunc(strings.Split(arg, ","), func(s string) bool { return s == "" || strings.ContainsAny(s, " \t\r\n") }) {
					return fmt.Errorf("%q is not the name of a resource; write it as pods, deployments.apps, deployments.v1.apps, Widget.example.com, or *.apps", arg)
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
					return &config.Error{Err: errors.New("--all and the name of a resource cannot be used together")}
				}
				if output == "table" {
					write = explain.Explanation.WriteAnswers
				}
			}
			if !ok {
				return &config.Error{Err: fmt.Errorf("--output=%q: use table or json", output)}
			}
			for _, arg := range args {
				question.Only = append(question.Only, strings.Split(arg, ",")...)
			}
			need := config.Forwarding
			if question.All || len(args) > 0 {
				need = config.Subscribing
			}
			return configured(cmd, need, func(ctx context.Context, cfg config.Config, log *slog.Logger) error {
				kube, err := finder(cfg, "resources", log).Config(ctx)
				if err != nil {
					return &config.Error{Err: err}
				}
				x, err := relay.Explain(ctx, relay.Config{Settings: cfg, Kube: kube}, question)
				if err != nil {
					return err
				}
				return write(x, cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&question.All, "all", false, "also list the resources that no selector matches")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func newSchemaCommand() *cobra.Command {
	var apiVersion string
	cmd := &cobra.Command{
		Use:   "schema resource",
		Short: "Print the JSON Schema of the events of a resource",
		Long: `Schema asks the API server for the OpenAPI v3 document of a resource and prints the
JSON Schema (draft 2020-12) of the data of its events. The data is the object or, with
KUBERELAY_DATA=change, the change. The schema is self-contained. It describes the version
that a forwarder watches, unless --version names another one.

Write the resource in any form that kubectl accepts. The schema ignores
KUBERELAY_DROP_FIELDS and KUBERELAY_HASH_FIELDS: in an event, a dropped field is missing,
and a hashed field is a string.

The schemas that don't depend on the resource are in docs/schemas.

Exit codes: 0 success; 1 the cluster does not serve the resource, or did not respond;
2 wrong command line or configuration.`,
		Example: `  forwarder schema deployments.apps
  forwarder schema widgets.example.com --version v1beta1
  KUBERELAY_DATA=change forwarder schema pods`,
		Args: usage(cobra.MatchAll(resourceNamed, cobra.MaximumNArgs(1))),
		RunE: func(cmd *cobra.Command, args []string) error {
			return configured(cmd, config.Subscribing, func(ctx context.Context, cfg config.Config, log *slog.Logger) error {
				kube, err := finder(cfg, "schema", log).Config(ctx)
				if err != nil {
					return &config.Error{Err: err}
				}
				client, err := kubediscovery.NewDiscoveryClientForConfig(kube)
				if err != nil {
					return &config.Error{Err: fmt.Errorf("find the cluster: %w", err)}
				}
				return writeSchema(ctx, client, args[0], apiVersion, event.DataForm(cfg.Content.Data), cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().StringVar(&apiVersion, "version", "", "version of the resource, such as v1 (default the version that a forwarder watches)")
	return cmd
}

// writeSchema writes the schema of the events of a resource in the given version. If version is "", it
// uses the version that a forwarder watches.
func writeSchema(ctx context.Context, client kubediscovery.DiscoveryInterface, asked, version string, form event.DataForm, w io.Writer) error {
	catalog, _, err := discovery.Discover(ctx, client, nil)
	if err != nil {
		return fmt.Errorf("discover the resources of the cluster: %w", err)
	}
	r, err := resourceOf(catalog, asked, version)
	if err != nil {
		return err
	}
	document, err := openAPIOf(ctx, openapi.ToClientWithContext(client.OpenAPIV3()), r)
	if err != nil {
		return fmt.Errorf("read the OpenAPI document of %s: %w", r.APIVersion(), err)
	}
	text, err := jsonschema.Of(document, r, form)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// openAPIOf returns the OpenAPI document of the group and version of a resource.
func openAPIOf(ctx context.Context, client openapi.ClientWithContext, r event.Resource) ([]byte, error) {
	paths, err := client.PathsWithContext(ctx)
	if err != nil {
		return nil, err
	}
	of, ok := paths[strings.Trim(r.Path(event.Key{}), "/")]
	if !ok {
		return nil, errors.New("the API server does not serve this document yet, or not at all")
	}
	return of.SchemaWithContext(ctx, runtime.ContentTypeJSON)
}

// resourceOf returns the one resource that asked matches, in the given version. If version is "", the
// resource has the version that a forwarder watches. Errors suggest resources or versions that the
// cluster serves.
func resourceOf(catalog *discovery.Catalog, asked, version string) (event.Resource, error) {
	matched := catalog.Match(asked)
	switch {
	case len(matched) > 1 || strings.Contains(asked, "*"):
		return event.Resource{}, &config.Error{Err: fmt.Errorf("%q selects several resources: name one", asked)}
	case len(matched) == 0:
		return event.Resource{}, notServed(catalog, asked)
	case version == "":
		return matched[0], nil
	}
	gr := matched[0].GroupResource()
	r, ok := catalog.Resource(gr.WithVersion(version))
	if !ok {
		return event.Resource{}, fmt.Errorf("the cluster does not serve %s in version %s, only in %s", gr, version, strings.Join(catalog.Versions(gr), ", "))
	}
	return r, nil
}

// notServed returns an error that says why the cluster does not serve a resource. If the cluster serves
// a resource with a similar name, the error suggests it.
func notServed(catalog *discovery.Catalog, asked string) error {
	_, group, _ := strings.Cut(asked, ".")
	if err := catalog.Failed[group]; err != nil {
		return fmt.Errorf("cannot tell whether the cluster serves %q, because discovery of its group failed: %w", asked, err)
	}
	err := fmt.Errorf("the cluster does not serve %q", asked)
	if similar := catalog.Similar(asked); similar != "" {
		err = fmt.Errorf("%w; did you mean %s?", err, similar)
	}
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"

	"github.com/kuberelay/kuberelay/internal/terminal"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	kubediscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsonschema"
)

func newConfigCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check the configuration and print what is in effect",
		Long: `Config checks the environment as 'forwarder run' does, without connecting to
anything, and prints each value and its source. For a file it prints the path,
never the content.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := map[string]func(io.Writer, []config.Value) error{"text": writeText, "json": writeJSON}[output]
			if !ok {
				return &usageError{fmt.Errorf("--output=%q: use text or json", output)}
			}
			cfg, err := loadConfig(config.Forwarding)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), cfg.Effective())
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func writeText(w io.Writer, values []config.Value) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VARIABLE\tVALUE\tSOURCE")
	for _, v := range values {
		value := v.Value
		if value == "" {
			value = "(" + v.Unset + ")"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", v.Name, strings.ReplaceAll(value, "\n", " "), source(v))
	}
	return table.Flush()
}

func writeJSON(w io.Writer, values []config.Value) error {
	type entry struct {
		Name   string `json:"name"`
		Value  string `json:"value"`
		Source string `json:"source"`
	}
	var entries []entry
	for _, v := range values {
		entries = append(entries, entry{v.Name, v.Value, source(v)})
	}
	return terminal.WriteJSON(w, entries)
}

func source(v config.Value) string {
	if v.Set {
		return "environment"
	}
	return "default"
}

func newSchemaCommand() *cobra.Command {
	var apiVersion string
	cmd := &cobra.Command{
		Use:   "schema resource",
		Short: "Print the JSON Schema of the events of a resource",
		Long: `Schema asks the API server for the OpenAPI v3 document of a resource and prints the
JSON Schema (draft 2020-12) of the data of its events: of the object, or, with
KUBERELAY_DATA=change, of the change. The schema is self-contained. It is that of the
version that a forwarder watches, unless --version names another.

The resource has any form that kubectl accepts. The schema doesn't consider
KUBERELAY_DROP_FIELDS and KUBERELAY_HASH_FIELDS: a dropped field is missing in events,
and a hashed one is a string.

docs/schemas has the schemas of what doesn't depend on the resource.

Exit codes: 0 success, 1 the cluster does not serve the resource or did not answer,
2 wrong command line or configuration.`,
		Example: `  forwarder schema deployments.apps
  forwarder schema widgets.example.com --version v1beta1
  KUBERELAY_DATA=change forwarder schema pods`,
		Args: usage(cobra.MatchAll(resourceNamed, cobra.MaximumNArgs(1))),
		RunE: func(cmd *cobra.Command, args []string) error {
			return configured(config.Subscribing, func(ctx context.Context, cfg config.Config, log *slog.Logger) error {
				kube, err := kubeConfig(cfg, "schema", log)
				if err != nil {
					return &usageError{err}
				}
				client, err := kubediscovery.NewDiscoveryClientForConfig(kube)
				if err != nil {
					return &usageError{fmt.Errorf("find the cluster: %w", err)}
				}
				return writeSchema(ctx, client, args[0], apiVersion, event.DataForm(cfg.Content.Data), cmd.OutOrStdout())
			})(cmd, args)
		},
	}
	cmd.Flags().StringVar(&apiVersion, "version", "", "version of the resource, such as v1; by default the one that is watched")
	return cmd
}

// writeSchema writes the schema of the events of a resource in a version, or, if that is "", in
// the watched version.
func writeSchema(ctx context.Context, client kubediscovery.DiscoveryInterface, asked, version string, form event.DataForm, w io.Writer) error {
	catalog, _, err := discovery.Discover(ctx, client, nil)
	if err != nil {
		// %s cuts the chain, here and below, so that an interrupted run does not count as a
		// requested end.
		return fmt.Errorf("discover the resources of the cluster: %s", err.Error())
	}
	r, err := resourceOf(catalog, asked, version)
	if err != nil {
		return err
	}
	document, err := openAPIOf(ctx, openapi.ToClientWithContext(client.OpenAPIV3()), r)
	if err != nil {
		return fmt.Errorf("read the OpenAPI document of %s: %s", r.APIVersion(), err.Error())
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
	path := "apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		path = "api/" + r.Version
	}
	of, ok := paths[path]
	if !ok {
		return nil, errors.New("the API server has none, or not yet")
	}
	return of.SchemaWithContext(ctx, runtime.ContentTypeJSON)
}

// resourceOf returns the resource that a name means. Its errors say what the cluster serves
// instead.
func resourceOf(catalog *discovery.Catalog, asked, version string) (event.Resource, error) {
	matched := catalog.Match(asked)
	switch {
	case len(matched) > 1 || strings.Contains(asked, "*"):
		return event.Resource{}, &usageError{fmt.Errorf("%q selects several resources: name one", asked)}
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

// notServed returns an error that says why the cluster does not serve a resource, with a similar
// name.
func notServed(catalog *discovery.Catalog, asked string) error {
	_, group, _ := strings.Cut(asked, ".")
	if err := catalog.Failed[group]; err != nil {
		return fmt.Errorf("the cluster does not serve %q: the discovery of its group fails: %w", asked, err)
	}
	err := fmt.Errorf("the cluster does not serve %q", asked)
	if similar := catalog.Similar(asked); similar != "" {
		err = fmt.Errorf("%w; did you mean %s?", err, similar)
	}
	return err
}

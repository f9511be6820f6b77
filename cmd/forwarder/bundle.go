package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/bundle"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/operations/client"
	"github.com/kuberelay/kuberelay/internal/sinks"
	"github.com/kuberelay/kuberelay/internal/status"
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
		Long: `Bundle asks a running forwarder, and the bus, and writes one .tar.gz for a bug report:
the status, the metrics, the configuration, the goroutines, a heap profile, the last
lines of the log (at most 1,000 and 256 KiB), and the settings of the stream or the
topics. manifest.json lists the files, the versions, and what is missing and why.

It has no content of an object and no secret: no password, token or key, no argument of
a function and no memory. It has names: of objects in the log and in errors, of
namespaces, hosts and files in the configuration. --no-logs leaves out the log.

Without --address it asks the forwarder of this environment, as 'forwarder status' does.
Without KUBERELAY_METRICS_AUTH, a forwarder serves its log, configuration, goroutines and
heap profile only to its own machine or pod: run the command there, or use kubectl
port-forward. With it, the token must be allowed to get /metrics and
/debug/support/*. The bus is asked with the settings of this environment.

Exit codes: 0 everything is in the bundle, 1 a part is missing or nothing was written, 2
wrong command line.`,
		Example: `  forwarder bundle
  kubectl --namespace kuberelay exec sts/kuberelay -- /forwarder bundle -o - > bundle.tar.gz
  forwarder bundle --address=localhost:8080 --no-logs -o bundle.tar.gz`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output == "-" && isTerminal(cmd.OutOrStdout()) {
				return &usageError{errors.New("--output=-: standard output is a terminal; redirect it to a file")}
			}
			return configured(config.Subscribing, func(ctx context.Context, cfg config.Config, _ *slog.Logger) error {
				forwarder, err := at.Connect(cfg.Operations)
				if err != nil {
					return &usageError{err}
				}
				m, parts := collect(ctx, forwarder, cfg, noLogs, at.Forwarder != "")
				if err := ctx.Err(); err != nil {
					return fmt.Errorf("interrupted, nothing is written: %s", err) //nolint:errorlint // this is a failure
				}
				messages := cmd.ErrOrStderr()
				if output == "-" {
					err = bundle.Write(cmd.OutOrStdout(), m, parts)
				} else {
					messages, err = cmd.OutOrStdout(), writeFile(cmp.Or(output, m.Name()+".tar.gz"), m, parts)
				}
				if err == nil {
					err = m.WriteText(messages)
				}
				if err == nil && output != "-" {
					_, err = fmt.Fprintln(messages, "written to", cmp.Or(output, m.Name()+".tar.gz"))
				}
				if err == nil && m.Failed() > 0 {
					return exitCode(exitFailure)
				}
				return err
			})(cmd, args)
		},
	}
	cmd.Flags().SortFlags = false
	addressFlag(cmd, &at)
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write, which must not exist, or - for standard output (default kuberelay-bundle-<cluster>-<time>.tar.gz in this folder)")
	cmd.Flags().BoolVar(&noLogs, "no-logs", false, "leave out the log, which has names of objects")
	credentialFlags(cmd, &at)
	return cmd
}

// collect requests all parts concurrently, except the bus. It reads the bus last, because the topics
// depend on the resources in the status.
func collect(ctx context.Context, forwarder *client.Client, cfg config.Config, noLogs, elsewhere bool) (bundle.Manifest, []bundle.Collected) {
	of := func(part, file, path, right string) bundle.Part {
		return bundle.Part{Name: part, Collect: func(ctx context.Context) ([]bundle.File, error) {
			content, err := forwarder.Get(ctx, path, nil, right)
			if err != nil {
				return nil, err
			}
			return []bundle.File{{Name: file, Content: content}}, nil
		}}
	}
	support := func(part, file string) bundle.Part {
		return of(part, file, operations.SupportPath+part, operations.SupportPath+"*")
	}
	log := support("log", "log.txt")
	if noLogs {
		log.Skip = "--no-logs"
	}
	var d status.Document
	all := bundle.Collect(ctx,
		bundle.Part{Name: "status", Collect: func(ctx context.Context) (files []bundle.File, err error) {
			if d, err = forwarder.Status(ctx, ""); err != nil {
				return nil, err
			}
			return statusFiles(d)
		}},
		of("metrics", "metrics.txt", "/metrics", "/metrics"), support("config", "config.txt"),
		support("goroutines", "goroutines.txt"), support("heap", "heap.pprof"), log,
	)
	all = append(all, bundle.Collect(ctx, busPart(cfg, d, elsewhere))...)
	at := forwarder.URL()
	m := bundle.Manifest{Time: time.Now().UTC(), Address: at.String(), Cluster: d.Cluster, Forwarder: d.Version, Command: versionLine()}
	return m.Index(all), all
}

// statusFiles returns the document as text for people and as JSON for programs.
func statusFiles(d status.Document) ([]bundle.File, error) {
	var files []bundle.File
	for _, f := range []struct{ name, printer string }{{"status.txt", "table"}, {"status.json", "json"}} {
		var content bytes.Buffer
		if err := status.Printers()[f.printer](&content, d); err != nil {
			return nil, err
		}
		files = append(files, bundle.File{Name: f.name, Content: content.Bytes()})
	}
	return files, nil
}

// busPart inspects the stream or the topics with the settings of this environment. It skips the bus if
// these settings can't be the settings of the forwarder's bus. elsewhere means that the command line
// has the forwarder's address.
func busPart(cfg config.Config, d status.Document, elsewhere bool) bundle.Part {
	p := bundle.Part{Name: "bus"}
	cfg.Event.ClusterName = cmp.Or(d.Cluster, cfg.Event.ClusterName, "unknown")
	builtIn := cfg.Event.Sink == config.SinkNATS && len(cfg.NATS.URLs) == 0
	switch {
	case d.Bus.Sink != "" && d.Bus.Sink != cfg.Event.Sink:
		p.Skip = fmt.Sprintf("the forwarder publishes to %s, and this environment has the settings of %s", d.Bus.Sink, cfg.Event.Sink)
	case cfg.Event.Sink == config.SinkStdout:
		p.Skip = "KUBERELAY_SINK is stdout"
	case builtIn && elsewhere:
		p.Skip = "this environment has no settings of the bus; status.json has what the forwarder knows"
	}
	p.Collect = func(ctx context.Context) ([]bundle.File, error) {
		ctx, cancel := context.WithTimeout(ctx, partTimeout)
		defer cancel()
		if cfg.Event.Sink == config.SinkKafka {
			var watched []schema.GroupResource
			for _, r := range d.Resources {
				watched = append(watched, schema.ParseGroupResource(r.Name))
			}
			found, err := sinks.InspectKafka(ctx, cfg, watched)
			if err != nil {
				return nil, err
			}
			return bundle.Kafka(found)
		}
		found, err := sinks.InspectNATS(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return bundle.NATS(found)
	}
	return p
}

// writeFile writes the bundle to a new file that only the current user can read. If writing fails, it
// removes the file.
func writeFile(name string, m bundle.Manifest, parts []bundle.Collected) (err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	switch {
	case errors.Is(err, os.ErrExist):
		return &usageError{fmt.Errorf("--output=%q: the file exists; name another", name)}
	case err != nil:
		return &usageError{fmt.Errorf("write the bundle: %w; name a file in a folder that can be written, or - for standard output, with --output", err)}
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(fmt.Errorf("write the bundle: %w", err), os.Remove(name))
		}
	}()
	return bundle.Write(f, m, parts)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/sinks/subscriber"
	"github.com/kuberelay/kuberelay/internal/tail"
)

func newGetCommand() *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:   "get RESOURCE [NAME...]",
		Short: "Print the objects on the bus, as kubectl get does",
		Long: `Get reads the NATS stream or the Kafka topics and prints the current state of the
objects on the bus. It does not connect to the cluster, and changes nothing.

Write a resource as pods, deployments.apps, *.apps, or Deployment, and separate resources
with commas. A name without a group matches in all groups. Get always shows the selected
cluster-scoped objects. It shows the objects in the namespace default unless --namespace
or --all-namespaces is set. It shows the clusters that --cluster names, or else the
cluster of KUBERELAY_CLUSTER_NAME, or else all clusters on the bus. 'forwarder help
connecting' says how it finds the bus.

On standard error, it prints the time of the last consistency point: the objects are
complete up to that time. It does not wait for an unreachable bus, or for a missing
stream or topic.

Exit codes: 0 success, even without objects; 1 a named object is not found, the bus has
no events of a resource or a cluster, or get could not read the bus; 2 wrong command
line or configuration.`,
		Example: `  forwarder get deployments -n shop
  forwarder get pods -A -l app=web -o wide
  forwarder get deployments.apps web -n shop -o yaml
  forwarder get nodes --cluster=management,workload-1`,
		Args: usage(resourceNamed),
		RunE: func(cmd *cobra.Command, args []string) error {
			var reading longwork.Counter
			defer showProgress(cmd, longwork.Work{Name: "reading the bus", Unit: "messages", Measure: reading.Measure})()
			f.resources, f.names = strings.Split(args[0], ","), args[1:]
			p, err := f.present(cmd)
			if err != nil {
				return &config.Error{Err: fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
			}
			cfg, err := loadConfig(config.Subscribing)
			if err != nil {
				return err
			}
			p.Reading = &reading
			return f.run(cmd.Context(), cfg, p, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	f.addFlags(flags)
	flags.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "show the objects in all namespaces")
	flags.StringVarP(&f.labels, "selector", "l", "", "only objects with these `labels`, such as app=web,tier!=test")
	flags.StringVarP(&f.output, "output", "o", "", "wide for more columns, name, json, or yaml")
	return cmd
}

// resourceNamed returns an error for a command line without a resource.
func resourceNamed(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("name a resource, such as pods or deployments.apps")
	}
	return nil
}

// getFlags are the arguments and flags of get.
type getFlags struct {
	selection
	names          []string
	allNamespaces  bool
	labels, output string
}

const (
	outputWide = "wide"
	outputName = "name"
	outputJSON = "json"
	outputYAML = "yaml"
)

// present checks the arguments and flags and returns a [tail.Present] that selects the objects.
func (f *getFlags) present(cmd *cobra.Command) (*tail.Present, error) {
	p := &tail.Present{Whole: f.output == outputJSON || f.output == outputYAML, Status: &tail.Status{W: cmd.ErrOrStderr()}}
	var err error
	if p.Filter, err = f.filter(cmd.Flags(), ""); err != nil {
		return nil, err
	}
	if p.Labels, err = labels.Parse(f.labels); err != nil {
		return nil, fmt.Errorf("--selector=%q: %w", f.labels, err)
	}
	switch {
	case !slices.Contains([]string{"", outputWide, outputName, outputJSON, outputYAML}, f.output):
		return nil, fmt.Errorf("--output=%q: use wide, name, json, or yaml, or leave it out", f.output)
	case f.allNamespaces && len(f.namespaces) > 0:
		return nil, errors.New("--namespace and --all-namespaces cannot be used together")
	case f.labels != "" && len(f.names) > 0:
		return nil, errors.New("--selector and a name cannot be used together")
	}
	p.Filter.Names = f.names
	if !f.allNamespaces {
		if len(f.namespaces) == 0 {
			p.Filter.Namespaces = []string{"default"}
		}
		p.Filter.Namespaces = append(p.Filter.Namespaces, "") // selects cluster-scoped objects
	}
	return p, nil
}

// run reads the bus and prints the selected objects. Its error names the objects, resources, and
// clusters that the bus does not have, and the messages that are not the state of an object.
func (f *getFlags) run(ctx context.Context, cfg config.Config, p *tail.Present, stdout io.Writer) error {
	f.cluster(cfg.Event.ClusterName, &p.Filter, p.Status)
	cfg.Event.ClusterName = "" // so that an error can name the other clusters
	bus, err := subscriber.Open(ctx, cfg, p.Status, p.Reading)
	if err != nil {
		return err
	}
	defer func() { _ = bus.Close() }() // an error is harmless, because nothing is in flight
	if err := p.Read(ctx, bus, cfg.NATS.SubjectPrefix); err != nil {
		return subscriber.Explain(cfg, err)
	}
	objects, removed := p.Objects()
	unseen := p.Unseen()
	unseen.Namespaces = f.namespaces
	var absent []string
	var wrong error // not nil if a resource or a cluster is absent
	if len(objects) == 0 || len(unseen.Resources) > 0 || len(f.clusters) > 1 || len(f.namespaces) > 1 {
		var isWrong bool
		if absent, isWrong, err = findAbsent(ctx, bus, cfg, p.Status.Source, unseen); err != nil {
			return err
		}
		if isWrong {
			wrong, absent = errors.New(strings.Join(absent, "\n")), nil
		}
	}
	if len(objects) > 0 || wrong == nil {
		if err := f.print(stdout, objects); err != nil {
			return err
		}
		f.say(p, objects, absent)
	}
	if wrong == nil {
		wrong = f.notFound(objects, removed)
	}
	return errors.Join(wrong, p.Err())
}

func (f *getFlags) print(w io.Writer, objects []tail.Object) error {
	if tail.Clusters(objects) > 1 && f.output != "" && f.output != outputWide {
		return &config.Error{Err: fmt.Errorf("the objects are of several clusters, which --output=%s does not show: name one with --cluster, or use 'forwarder tail --last --no-follow --output=json'", f.output)}
	}
	single := len(f.names) == 1
	switch {
	case len(objects) == 0 && (len(f.names) > 0 || f.output == "" || f.output == outputWide):
		return nil
	case f.output == outputName:
		return tail.WriteNames(w, objects)
	case f.output == outputJSON:
		return tail.WriteJSON(w, objects, single && len(objects) == 1)
	case f.output == outputYAML:
		return tail.WriteYAML(w, objects, single && len(objects) == 1)
	}
	return tail.Table{Namespaces: f.allNamespaces || len(f.namespaces) > 1, Wide: f.output == outputWide, Now: time.Now()}.Write(w, objects)
}

// say prints remarks about the output on standard error, such as truncated objects and freshness.
func (f *getFlags) say(p *tail.Present, objects []tail.Object, absent []string) {
	if len(objects) == 0 && len(f.names) == 0 {
		p.Status.Say("no %s%s", strings.Join(f.resources, ","), f.where())
	}
	for _, s := range absent {
		p.Status.Say("%s", s)
	}
	truncated := 0
	for _, o := range objects {
		if o.Truncated {
			truncated++
		}
	}
	if truncated > 0 && p.Whole {
		p.Status.Say("%d of %d objects have only apiVersion, kind, and metadata, because they are too large for the bus: see the annotation %s", truncated, len(objects), event.TruncatedAnnotation)
	}
	for _, s := range freshness(p.Freshness(), time.Now()) {
		p.Status.Say("%s", s)
	}
}

// where returns a phrase that names the namespaces of the search.
func (f *getFlags) where() string {
	switch {
	case f.allNamespaces:
		return " on the bus"
	case len(f.namespaces) == 0:
		return ` in the namespace "default"; --all-namespaces shows all`
	}
	return " in the namespace " + strconv.Quote(strings.Join(f.namespaces, ","))
}

// notFound returns an error with the names that were not found.
func (f *getFlags) notFound(objects, removed []tail.Object) error {
	var all []error
	for _, name := range f.names {
		isNamed := func(o tail.Object) bool { return o.Key.Name == name }
		if slices.ContainsFunc(objects, isNamed) {
			continue
		}
		why := "not found" + f.where()
		if i := slices.IndexFunc(removed, isNamed); i >= 0 {
			word, _ := strings.CutPrefix(string(removed[i].Removed), "io.kuberelay.object.")
			why = fmt.Sprintf("not found: it was %s %s ago", word, duration.HumanDuration(time.Since(removed[i].Changed)))
		}
		all = append(all, fmt.Errorf("%s %s %s", strings.Join(f.resources, ","), strconv.Quote(name), why))
	}
	return errors.Join(all...)
}

// behindAfter is the age of the last consistency point above which get warns that the forwarder might
// be down or behind. A resource without changes has a point about once a minute.
const behindAfter = 2 * time.Minute

// freshness returns lines that say how current the objects are. For the resources with a
// consistency point, it reports only the oldest point.
func freshness(all []tail.Freshness, now time.Time) []string {
	var lines, without []string
	var oldest *tail.Freshness
	for i, f := range all {
		switch {
		case f.Syncing:
			lines = append(lines, fmt.Sprintf("the first sync of %s is not complete: objects can be missing", nameOf(f)))
		case f.AsOf.IsZero():
			without = append(without, nameOf(f))
		case oldest == nil || f.AsOf.Before(oldest.AsOf):
			oldest = &all[i]
		}
	}
	if len(without) > 0 {
		lines = append(lines, fmt.Sprintf("the bus has no consistency point of %s, so the age of the objects is unknown", strings.Join(without, ", ")))
	}
	if oldest != nil {
		age := max(0, now.Sub(oldest.AsOf))
		line := fmt.Sprintf("%s as of %s, %s ago", nameOf(*oldest), oldest.AsOf.UTC().Format(time.RFC3339), duration.HumanDuration(age))
		if age > behindAfter {
			line += ": the forwarder might be down or behind"
		}
		lines = append(lines, line)
	}
	return lines
}

func nameOf(f tail.Freshness) string {
	return fmt.Sprintf("%s of the cluster %s", strings.Trim(strconv.Quote(f.Resource.String()), `"`), strconv.Quote(f.Cluster))
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/relay"
	"github.com/kuberelay/kuberelay/internal/selector"
	"github.com/kuberelay/kuberelay/internal/tail"
)

// selection is what a command that reads the bus selects.
type selection struct {
	resources, clusters, namespaces []string
}

// addFlags adds the flags of the clusters and the namespaces.
func (s *selection) addFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&s.clusters, "cluster", nil, "only these `clusters`, by their names on the bus; * for all, whatever KUBERELAY_CLUSTER_NAME is")
	flags.StringSliceVarP(&s.namespaces, "namespace", "n", nil, "only objects in these `namespaces`")
}

// filter checks the selection. resource is what precedes a resource on the command line.
func (s *selection) filter(flags *pflag.FlagSet, resource string) (tail.Filter, error) {
	var filter tail.Filter
	for name, values := range map[string][]string{"resource": s.resources, "cluster": s.clusters, "namespace": s.namespaces} {
		if flags.Changed(name) && len(values) == 0 { // a variable of a script may be unset
			return filter, fmt.Errorf("--%s is empty: name at least one, or leave it out", name)
		}
	}
	for _, text := range s.resources {
		selector, err := tail.ParseSelector(text)
		if err != nil {
			return filter, fmt.Errorf("%s%q: %w", resource, text, err)
		}
		filter.Resources = append(filter.Resources, selector)
	}
	if !s.allClusters() {
		for _, text := range s.clusters {
			name, err := tail.ParseCluster(text)
			if err != nil {
				return filter, fmt.Errorf("--cluster=%q: %w", text, err)
			}
			filter.Clusters = append(filter.Clusters, name)
		}
	}
	for _, text := range s.namespaces {
		ns, err := tail.ParseNamespace(text)
		if err != nil {
			return filter, fmt.Errorf("--namespace=%q: %w", text, err)
		}
		filter.Namespaces = append(filter.Namespaces, ns)
	}
	return filter, nil
}

// allClusters reports whether --cluster is *.
func (s *selection) allClusters() bool { return slices.Equal(s.clusters, []string{"*"}) }

// readable is a bus to read.
type readable interface {
	tail.Bus
	Progress(ctx context.Context, consumer string, log publish.Log) (publish.Progress, error)
	Close() error
}

var _, _ readable = (*natsreader.Bus)(nil), (*reader.Bus)(nil)

// busError turns an error that a retry does not fix into a usageError.
func busError(err error) error {
	if errors.Is(err, natsreader.ErrMisconfigured) || errors.Is(err, reader.ErrMisconfigured) {
		return &usageError{err}
	}
	return err
}

// cluster limits the output to the configured cluster unless the flags name others. It returns the
// cluster to open the bus for, or "" for several.
func (s *selection) cluster(configured string, filter *tail.Filter, status *tail.Status) string {
	if len(filter.Clusters) == 0 && configured != "" && !s.allClusters() {
		filter.Clusters = []string{configured}
		status.Say("only the cluster %s, as KUBERELAY_CLUSTER_NAME says; --cluster=* shows all", strconv.Quote(configured))
	}
	if len(filter.Clusters) == 1 {
		return filter.Clusters[0]
	}
	return ""
}

// openReader opens the bus without a log: the status has what a person needs. The counter, if not
// nil, counts what is read.
func openReader(ctx context.Context, cfg config.Config, status *tail.Status, reading *longwork.Counter) (readable, error) {
	switch cfg.Event.Sink {
	case config.SinkKafka:
		status.Source = "topic " + cfg.Kafka.Topic
		options := relay.KafkaReaderOptions(cfg)
		options.Reading = reading
		return reader.Open(options)
	case config.SinkNATS:
	default:
		return nil, &usageError{fmt.Errorf("KUBERELAY_SINK is %s, which cannot be read back: this command reads NATS or Kafka; unset it", cfg.Event.Sink)}
	}
	if len(cfg.NATS.URLs) == 0 {
		status.Hint = builtInHint
	}
	status.Source = "stream " + cfg.NATS.Stream
	options, err := relay.NATSReaderOptions(cfg)
	if err != nil {
		return nil, &usageError{err}
	}
	options.Reading = reading
	return natsreader.Connect(ctx, options)
}

// findAbsent returns a sentence for each name in a filter of which the bus has nothing, and whether
// one of them is a resource or a cluster. cfg is for all clusters.
func findAbsent(ctx context.Context, bus tail.Bus, cfg config.Config, source string, f tail.Filter) (sentences []string, wrong bool, err error) {
	all, err := tail.FindAbsent(ctx, bus, cfg.NATS.SubjectPrefix, f)
	for _, a := range all {
		sentences = append(sentences, fmt.Sprintf("the %s has nothing of the %s %s%s", source, a.What, strconv.Quote(a.Name), alternatives(a)))
		wrong = wrong || a.What != "namespace"
	}
	return sentences, wrong, err
}

// maxAlternatives is how many names a sentence lists.
const maxAlternatives = 10

// alternatives says what the bus has instead of a name.
func alternatives(a tail.Absent) string {
	names := make([]string, len(a.Have))
	for i, name := range a.Have {
		names[i] = strings.Trim(strconv.Quote(name), `"`)
	}
	switch {
	case len(names) == 0:
		return " yet"
	case len(names) <= maxAlternatives:
		return "; it has " + strings.Join(names, ", ")
	}
	if !strings.Contains(a.Name, ".") && a.What == "resource" {
		for i := range names {
			names[i], _, _ = strings.Cut(names[i], ".")
		}
	}
	return fmt.Sprintf("; it has %d others, did you mean %s?", len(names), selector.Nearest(a.Name, names))
}

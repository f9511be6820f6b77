package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/sinks/subscriber"
	"github.com/kuberelay/kuberelay/internal/tail"
)

// selection contains the flags and arguments that select objects. The commands that read the bus
// share it.
type selection struct {
	resources, clusters, namespaces []string
}

// addFlags adds the flags for clusters and namespaces.
func (s *selection) addFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&s.clusters, "cluster", nil, "only these `clusters`, by their names on the bus; * for all clusters, even if KUBERELAY_CLUSTER_NAME is set")
	flags.StringSliceVarP(&s.namespaces, "namespace", "n", nil, "only objects in these `namespaces`")
}

// filter checks the selection and returns a filter for it. In errors, resource is the text before the
// name of a resource, such as "--resource=".
func (s *selection) filter(flags *pflag.FlagSet, resource string) (tail.Filter, error) {
	var filter tail.Filter
	for name, values := range map[string][]string{"resource": s.resources, "cluster": s.clusters, "namespace": s.namespaces} {
		if flags.Changed(name) && len(values) == 0 { // for example, a script used an unset variable
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

// cluster limits the filter to the configured cluster unless the flags name other clusters. It returns
// the cluster to open the bus for, or "" for several clusters.
func (s *selection) cluster(configured string, filter *tail.Filter, status *tail.Status) string {
	if len(filter.Clusters) == 0 && configured != "" && !s.allClusters() {
		filter.Clusters = []string{configured}
		status.Say("showing only the cluster %s (KUBERELAY_CLUSTER_NAME); --cluster=* shows all", strconv.Quote(configured))
	}
	if len(filter.Clusters) == 1 {
		return filter.Clusters[0]
	}
	return ""
}

// findAbsent returns a sentence for each name in the filter that has no event on the bus. wrong
// means that one of these names is a resource or a cluster. cfg must have no cluster name.
func findAbsent(ctx context.Context, bus tail.Bus, cfg config.Config, source string, f tail.Filter) (sentences []string, wrong bool, err error) {
	all, err := tail.FindAbsent(ctx, bus, cfg.NATS.SubjectPrefix, f)
	for _, a := range all {
		sentences = append(sentences, a.Sentence(source))
		wrong = wrong || a.What != "namespace"
	}
	return sentences, wrong, subscriber.Explain(cfg, err)
}

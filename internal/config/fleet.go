package config

import (
	"errors"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// The variables that set a source of clusters.
const (
	contextsVariable   = "KUBERELAY_KUBECONFIG_CONTEXTS"
	dirVariable        = "KUBERELAY_KUBECONFIG_DIR"
	clusterAPIVariable = "KUBERELAY_CLUSTER_API"
)

// Source returns the variable that sets the source of clusters, or "" if the forwarder copies one
// cluster.
func (f Fleet) Source() string {
	for _, s := range f.sources() {
		if s.set {
			return s.name
		}
	}
	return ""
}

type fleetSource struct {
	name string
	set  bool
}

func (f Fleet) sources() []fleetSource {
	return []fleetSource{{contextsVariable, len(f.Contexts) > 0}, {dirVariable, f.Dir != ""}, {clusterAPIVariable, len(f.ClusterAPI) > 0}}
}

// NamedContext splits an entry of Fleet.Contexts into the name of a cluster and its context.
func NamedContext(entry string) (name, context string) {
	if name, context, ok := strings.Cut(entry, "="); ok {
		return name, context
	}
	return entry, entry
}

// IsClusterName reports whether name is a valid name of a cluster on the bus.
func IsClusterName(name string) bool { return clusterName.MatchString(name) }

// validateFleet checks the source of several clusters, and rejects settings that belong to one
// cluster.
func (c *Config) validateFleet(p *problems) {
	f, source := c.Fleet, c.Fleet.Source()
	for _, s := range f.sources() {
		if s.set && s.name != source {
			p.add(s.name, "%s is set as well; keep one of them", source)
		}
	}
	if f.Management != "" {
		switch {
		case len(f.ClusterAPI) == 0:
			p.add("KUBERELAY_CLUSTER_API_MANAGEMENT_NAME", "%s is not set; set it as well, or unset this", clusterAPIVariable)
		case !IsClusterName(f.Management):
			p.add("KUBERELAY_CLUSTER_API_MANAGEMENT_NAME", "not a name; use at most 253 letters, digits, periods, underscores, and hyphens, and begin with a letter or digit")
		}
	}
	if source == "" {
		return
	}
	for _, v := range []struct{ name, value string }{
		{"KUBERELAY_CLUSTER_NAME", c.Event.ClusterName},
		{"KUBERELAY_CLUSTER_REPLACES", c.Event.ClusterReplaces},
		{"KUBERELAY_KAFKA_TRANSACTIONAL_ID", c.Kafka.TransactionalID},
	} {
		if v.value != "" {
			p.add(v.name, "it belongs to one cluster, and %s names several; unset one of them", source)
		}
	}
	f.validateContexts(p)
	if f.Dir != "" {
		if info, err := os.Stat(f.Dir); err != nil || !info.IsDir() {
			p.add(dirVariable, "not a directory; name one with kubeconfig files")
		}
	}
	for _, ns := range f.ClusterAPI {
		if ns != "*" && len(validation.IsDNS1123Label(ns)) > 0 {
			p.addItem(clusterAPIVariable, f.ClusterAPI, ns, errors.New("not a valid namespace name; use at most 63 lowercase letters, digits, and hyphens, or * for all"))
		}
	}
	checkWildcard(p, clusterAPIVariable, f.ClusterAPI)
}

func (f Fleet) validateContexts(p *problems) {
	seen := map[string]bool{}
	for _, entry := range f.Contexts {
		name, _ := NamedContext(entry)
		switch {
		case entry == "*":
		case !IsClusterName(name):
			p.addItem(contextsVariable, f.Contexts, entry, errors.New("the context cannot be the name of a cluster; write name=context, with letters, digits, periods, underscores, and hyphens in the name"))
		case seen[name]:
			p.addItem(contextsVariable, f.Contexts, entry, errors.New("another entry has the same name; write name=context with another name"))
		}
		seen[name] = true
	}
	checkWildcard(p, contextsVariable, f.Contexts)
}

func checkWildcard(p *problems, variable string, list List) {
	if len(list) > 1 && slices.Contains(list, "*") {
		p.add(variable, "* means all; remove the others, or the *")
	}
}

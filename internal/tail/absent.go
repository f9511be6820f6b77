package tail

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/selector"
)

// Absent is a resource, namespace, or cluster for which the bus has no event.
type Absent struct {
	What string   // resource, namespace, or cluster
	Name string   // as the filter names it
	Have []string // the resources, namespaces, or clusters that the bus has events for, sorted
}

// maxAlternatives is the maximum number of names in a sentence.
const maxAlternatives = 10

// Sentence says that the source, such as "stream KUBERELAY", has no events of the name. It suggests names
// that the bus has.
func (a Absent) Sentence(source string) string {
	return fmt.Sprintf("the %s has no events of the %s %s%s", source, a.What, strconv.Quote(a.Name), a.alternatives())
}

func (a Absent) alternatives() string {
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

// FindAbsent returns the clusters in the filter for which the bus has no event. If the bus has
// events for all of them, FindAbsent returns the absent resources and namespaces in these clusters.
// For each name, it reads the bus up to the first event. It does not wait for a bus that is missing
// or unreachable.
func FindAbsent(ctx context.Context, bus Bus, subjectPrefix string, f Filter) ([]Absent, error) {
	var clusters, others []named
	for _, c := range f.Clusters {
		clusters = append(clusters, named{"cluster", c, Filter{Clusters: []string{c}, Points: true}})
	}
	for _, s := range f.Resources {
		if s.resource.String() != wild {
			others = append(others, named{"resource", s.resource.String(), Filter{Clusters: f.Clusters, Resources: []Selector{s}, Points: true}})
		}
	}
	for _, ns := range f.Namespaces {
		if ns != "" {
			others = append(others, named{"namespace", ns, Filter{Clusters: f.Clusters, Namespaces: []string{ns}}})
		}
	}
	l := look{bus: bus, prefix: subjectPrefix}
	absent, err := l.absent(ctx, clusters)
	if err != nil || len(absent) > 0 {
		return absent, err
	}
	l.clusters = f.Clusters
	return l.absent(ctx, others)
}

// named is a name in a filter, together with a filter that selects its events.
type named struct {
	what, name string
	filter     Filter
}

// look searches the bus for names.
type look struct {
	bus      Bus
	prefix   string
	clusters []string // search these for resources and namespaces; all if empty
}

func (l look) absent(ctx context.Context, all []named) ([]Absent, error) {
	var absent []Absent
	for _, n := range all {
		have := inventory{}
		found := false
		o := publish.SubscribeOptions{Filters: n.filter.Subjects(l.prefix), From: publish.FromStart, Notify: func(error) {}}
		err := readToEnd(ctx, l.bus, o, func(m *event.Message, d publish.Delivery) error {
			e := Event{Delivery: d, Message: m}
			if found = n.filter.Match(e); found {
				return errEnough
			}
			have.add(e, l.clusters)
			return nil
		})
		if listed, ok := l.bus.(lister); err == nil && !found && ok {
			err = l.list(ctx, listed, have)
		}
		if err != nil {
			return nil, err
		}
		if !found && !have[n.what][n.name] {
			absent = append(absent, Absent{n.what, n.name, slices.Sorted(maps.Keys(have[n.what]))})
		}
	}
	return absent, nil
}

// lister is a bus that lists its subjects, such as NATS. A subscription to it yields only events
// that match the filter, so [Absent.Have] needs the list.
type lister interface {
	Subjects(ctx context.Context) ([]string, error)
}

func (l look) list(ctx context.Context, bus lister, have inventory) error {
	subjects, err := bus.Subjects(ctx)
	for _, s := range subjects {
		if _, cluster, k, marker, err := subject.Parse(s); err == nil {
			have.add(Event{Delivery: publish.Delivery{Cluster: cluster}, Message: &event.Message{Key: k, Marker: marker}}, l.clusters)
		}
	}
	return err
}

// inventory is the set of names on the bus, grouped into "cluster", "resource", and "namespace".
type inventory map[string]map[string]bool

// add adds the names in an event. It adds resources and namespaces only from the given clusters, or
// from all clusters if none are given.
func (i inventory) add(e Event, clusters []string) {
	k := e.Message.Key
	i.put("cluster", e.Cluster)
	if len(clusters) > 0 && !slices.Contains(clusters, e.Cluster) {
		return
	}
	i.put("namespace", k.Namespace)
	if k.Resource != "" {
		i.put("resource", k.GroupResource().String())
	}
	if k.GroupResource() == (schema.GroupResource{Resource: "namespaces"}) { // the namespace itself might be empty
		i.put("namespace", k.Name)
	}
}

func (i inventory) put(what, name string) {
	if i[what] == nil {
		i[what] = map[string]bool{}
	}
	if name != "" {
		i[what][name] = true
	}
}

package tail

import (
	"slices"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
)

// Filter selects events. The zero value selects all events except consistency points. An empty list
// selects everything.
type Filter struct {
	Clusters   []string   // any of these
	Resources  []Selector // any of these
	Namespaces []string   // any of these, "" for cluster-scoped objects; excludes markers
	Names      []string   // objects with any of these names; excludes markers
	Markers    bool       // include markers despite Namespaces or Names
	Points     bool       // include consistency points
}

// Match reports whether the filter selects an event.
func (f Filter) Match(e Event) bool {
	k := e.Message.Key
	return (f.Points || !e.Message.IsResolved()) && (len(f.Clusters) == 0 || slices.Contains(f.Clusters, e.Cluster)) &&
		(len(f.Resources) == 0 || slices.ContainsFunc(f.Resources, func(s Selector) bool { return s.match(e.Message) })) &&
		(e.Message.Marker && f.markers() || !e.Message.Marker &&
			(len(f.Namespaces) == 0 || slices.Contains(f.Namespaces, k.Namespace)) &&
			(len(f.Names) == 0 || slices.Contains(f.Names, k.Name)))
}

// markers reports whether the filter can select markers.
func (f Filter) markers() bool { return f.Markers || len(f.Namespaces) == 0 && len(f.Names) == 0 }

// maxSubjects limits the number of subjects that the NATS server matches against each message.
const maxSubjects = 32

// Subjects returns at most maxSubjects NATS subject filters, which match all selected events and
// possibly others. As JetStream requires, no two of the filters overlap.
func (f Filter) Subjects(prefix string) []string {
	var all []string
	for _, cluster := range f.Clusters {
		if s := subject.Cluster(prefix, cluster); !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	if len(all) == 0 || len(all) > maxSubjects {
		all = []string{prefix + ".>"}
	}
	if len(f.Resources) == 0 && len(f.Namespaces) == 0 && len(f.Names) == 0 {
		return all
	}
	var subjects [][]string
	for _, cluster := range orWild(f.Clusters) {
		for _, k := range f.keys() {
			subjects = addSubject(subjects, tokens(subject.Object(prefix, cluster, k)))
			if f.markers() {
				subjects = addSubject(subjects, tokens(subject.Marker(prefix, cluster, k.GroupResource())))
				if f.Points {
					subjects = addSubject(subjects, tokens(subject.Resolved(prefix, cluster, k.GroupResource())))
				}
			}
		}
	}
	switch {
	case len(subjects) > maxSubjects && len(f.Names) > 0:
		f.Names, f.Markers = nil, f.markers()
		return f.Subjects(prefix)
	case len(subjects) > maxSubjects:
		return all
	}
	joined := make([]string, len(subjects))
	for i, s := range subjects {
		joined[i] = strings.Join(s, ".")
	}
	return joined
}

// wild stands for every value in a key. It is not a valid value of any field. subject.Object escapes
// it to escapedWild.
const (
	wild        = "*"
	escapedWild = "=2A"
)

// keys returns the keys that the filter selects, with wild for each field that can have any value.
func (f Filter) keys() []event.Key {
	selectors := f.Resources
	if len(selectors) == 0 {
		selectors = []Selector{{}}
	}
	var keys []event.Key
	for _, s := range selectors {
		for _, group := range orWild(s.groups) {
			for _, plural := range orWild(s.plurals) {
				for _, ns := range orWild(f.Namespaces) {
					for _, name := range orWild(f.Names) {
						keys = append(keys, event.Key{Group: group, Resource: plural, Namespace: ns, Name: name})
					}
				}
			}
		}
	}
	return keys
}

// orWild returns the values, or only wild if there are none.
func orWild(values []string) []string {
	if len(values) == 0 {
		return []string{wild}
	}
	return values
}

func tokens(subject string) []string {
	t := strings.Split(subject, ".")
	for i := range t {
		if t[i] == escapedWild {
			t[i] = wild
		}
	}
	return t
}

// addSubject adds a filter to filters that do not overlap. If the new filter overlaps another one, a
// wider filter replaces both.
func addSubject(subjects [][]string, s []string) [][]string {
	for i, other := range subjects {
		if overlap(s, other) {
			return addSubject(slices.Delete(subjects, i, i+1), widen(s, other))
		}
	}
	return append(subjects, s)
}

func overlap(a, b []string) bool {
	for i := range a {
		if a[i] != b[i] && a[i] != wild && b[i] != wild {
			return false
		}
	}
	return true
}

func widen(a, b []string) []string {
	w := slices.Clone(a)
	for i := range w {
		if w[i] != b[i] {
			w[i] = wild
		}
	}
	return w
}

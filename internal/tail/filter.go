package tail

import (
	"slices"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Filter chooses events. Its zero value takes all.
type Filter struct {
	Clusters   []string   // any of these; all if none
	Resources  []Selector // any of these; all if none
	Namespaces []string   // any of these: no marker and no cluster-scoped object then; all if none
}

// Match tells whether the event is chosen.
func (f Filter) Match(e Event) bool {
	k := e.Message.Key
	return (len(f.Clusters) == 0 || slices.Contains(f.Clusters, e.Cluster)) &&
		(len(f.Resources) == 0 || slices.ContainsFunc(f.Resources, func(s Selector) bool { return s.match(e.Message) })) &&
		(len(f.Namespaces) == 0 || !e.Message.Marker && slices.Contains(f.Namespaces, k.Namespace))
}

// maxSubjects bounds the work that a filter makes the server do for each message.
const maxSubjects = 32

// Subjects are the NATS subjects that the chosen events are under, and as few
// others as can be. No two of them match the same subject, as JetStream demands.
func (f Filter) Subjects(prefix string) []string {
	var all []string
	for _, cluster := range f.Clusters {
		if s := event.ClusterSubjects(prefix, cluster); !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	if len(all) == 0 || len(all) > maxSubjects {
		all = []string{prefix + ".>"}
	}
	if len(f.Resources) == 0 && len(f.Namespaces) == 0 {
		return all
	}
	clusters := f.Clusters
	if len(clusters) == 0 {
		clusters = []string{wild}
	}
	var subjects [][]string
	for _, cluster := range clusters {
		for _, k := range f.keys() {
			subjects = addSubject(subjects, tokens(event.Subject(prefix, cluster, k)))
			if len(f.Namespaces) == 0 {
				subjects = addSubject(subjects, tokens(event.MarkerSubject(prefix, cluster, k.GroupResource())))
			}
		}
	}
	if len(subjects) > maxSubjects {
		return all
	}
	joined := make([]string, len(subjects))
	for i, s := range subjects {
		joined[i] = strings.Join(s, ".")
	}
	return joined
}

// wild stands in a key for every value. It is no valid value of any field; in a
// subject it is escaped.
const (
	wild        = "*"
	escapedWild = "=2A"
)

// keys are the identities that the filter takes, each with any name.
func (f Filter) keys() []event.Key {
	namespaces, selectors := f.Namespaces, f.Resources
	if len(namespaces) == 0 {
		namespaces = []string{wild}
	}
	if len(selectors) == 0 {
		selectors = []Selector{{group: wild}}
	}
	var keys []event.Key
	for _, s := range selectors {
		plurals := s.plurals
		if len(plurals) == 0 {
			plurals = []string{wild}
		}
		for _, plural := range plurals {
			for _, ns := range namespaces {
				keys = append(keys, event.Key{Group: s.group, Resource: plural, Namespace: ns, Name: wild})
			}
		}
	}
	return keys
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

// addSubject adds a filter to those of which no two overlap. Where the new one
// overlaps with another, one that takes the place of both is wider than they are.
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

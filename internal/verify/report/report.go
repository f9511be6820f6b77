// Package report defines the result of a verification, and prints it for people and scripts.
package report

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Kind is the kind of a problem.
type Kind string

const (
	// Missing: the object exists in the cluster, and not on the bus.
	Missing Kind = "missing"
	// Stale: the bus has another state than the cluster.
	Stale Kind = "stale"
	// Extra: the object exists on the bus, and not in the cluster.
	Extra Kind = "extra"
	// Different: the bus has the present version, with other data.
	Different Kind = "different"
	// Misordered: the events of the object contradict each other.
	Misordered Kind = "misordered"
	// Malformed: a message violates the format of events.
	Malformed Kind = "malformed"
	// Foreign: another writer published the message, and the forwarder published the state of
	// the object again after it.
	Foreign Kind = "foreign"
)

// Report is the result of a verification. The JSON field names are stable.
type Report struct {
	// Cluster is the name of the cluster on the bus.
	Cluster string `json:"cluster"`
	// Objects is the number of objects of the selected resources in the cluster.
	Objects int `json:"objects"`
	// Messages is the number of the cluster's messages on the bus, up to Position.
	Messages int    `json:"messages"`
	Position uint64 `json:"position"`
	// Partitions takes the place of Position on Kafka.
	Partitions []Partition `json:"partitions,omitempty"`
	// ResourceVersion is the latest resourceVersion of a list of the cluster, "" if nothing was
	// listed.
	ResourceVersion string     `json:"resourceVersion"`
	Resources       []Resource `json:"resources"`

	Problems []Problem `json:"problems"`

	// OutOfScope is the number of objects on the bus that the configuration no longer selects.
	// They are not compared.
	OutOfScope int `json:"outOfScope"`
	// InMotion is the number of objects that changed so often that both sides never showed the
	// same state. The bus followed their versions. Their data was not compared.
	InMotion int `json:"inMotion"`
	// OtherVersion is the number of objects whose last event is in an API version that the
	// cluster no longer serves. Their uid and resourceVersion match the cluster. Their data was
	// not compared.
	OtherVersion int `json:"otherVersion"`
	// Settings has the variables that decide what the bus holds and whose values differ from those
	// of the forwarder that wrote it. They can be the cause of a problem. The caller of Run sets
	// Settings.
	Settings []string `json:"settingsThatDiffer"`
	// Unmatched has the selectors that match nothing in the cluster.
	Unmatched []string `json:"unmatched"`
	// Unlisted has the resources that could not be read. If there are any, Run also returns an
	// error.
	Unlisted []Unlisted `json:"unlisted"`
}

// Resource is a resource that was listed.
type Resource struct {
	Resource        string `json:"resource"` // "deployments.apps"
	Version         string `json:"version"`  // of the API: "v1"
	Objects         int    `json:"objects"`
	ResourceVersion string `json:"resourceVersion"` // of the list; the latest of several

	// Point is the consistency point at which differences were judged. NoPoint says why there is
	// none: differences then had the settle time to disappear.
	Point   *Point `json:"point,omitempty"`
	NoPoint string `json:"noPoint,omitempty"`
	// Settled is the number of objects that were read again until bus and cluster agreed, or until
	// the settle time was over: those that changed after the point, or, without a point, all that
	// differed.
	Settled int `json:"settled"`
}

// Point is a consistency point on the bus.
type Point struct {
	ResourceVersion string    `json:"resourceVersion"`
	Time            time.Time `json:"time"`       // when the watch of the forwarder had shown that version
	Age             float64   `json:"ageSeconds"` // at the comparison
}

// Unlisted is a resource that could not be read.
type Unlisted struct {
	Resource string `json:"resource"`
	Reason   string `json:"reason"`
}

// Partition is a partition of a topic, read up to an offset: that of the next record.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
}

// Problem is one difference between bus and cluster, or one invalid message.
type Problem struct {
	Kind      Kind   `json:"problem"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`           // "" if the problem concerns a whole resource
	Cluster   string `json:"clusterVersion"` // resourceVersion in the cluster, "" if absent or irrelevant
	Bus       string `json:"busVersion"`     // resourceVersion on the bus, "" if there is none
	Position  uint64 `json:"position"`       // of the message, 0 without one
	Detail    string `json:"detail"`
	// Point is the resourceVersion of the consistency point at which the difference was found, ""
	// if it was not found at one.
	Point string `json:"point,omitempty"`

	// Partition is the partition of the record on Kafka, nil without one. Position is then the
	// offset.
	Partition *int `json:"partition,omitempty"`
}

// differences returns the number of problems of state. broken returns the number of problems
// of Kuberelay's messages.
func (r Report) differences() int { return len(r.Problems) - r.broken() - r.countOf(Foreign) }

func (r Report) broken() int { return r.countOf(Misordered) + r.countOf(Malformed) }

func (r Report) countOf(k Kind) (n int) {
	for _, p := range r.Problems {
		if p.Kind == k {
			n++
		}
	}
	return n
}

// isUnknown reports whether the bus has nothing of a cluster that has objects. A wrong name is
// more likely than a wrong bus.
func (r Report) isUnknown() bool { return r.Objects > 0 && r.Messages == 0 }

// Clean reports whether there is no problem and everything could be read.
func (r Report) Clean() bool { return len(r.Problems) == 0 && len(r.Unlisted) == 0 }

// IsOf reports whether a problem is one of an object.
func (p *Problem) IsOf(k event.Key) bool {
	return p.Namespace == k.Namespace && p.Name == k.Name && p.Resource == k.GroupResource().String()
}

// SetKey sets the fields that identify the object.
func (p *Problem) SetKey(k event.Key) {
	p.Resource, p.Namespace, p.Name = k.GroupResource().String(), k.Namespace, k.Name
}

// Sort sorts the lists of a report, and makes empty ones empty lists in JSON.
func (r *Report) Sort() {
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name), cmp.Compare(a.Position, b.Position), cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Detail, b.Detail))
	})
	slices.SortFunc(r.Resources, func(a, b Resource) int { return strings.Compare(a.Resource, b.Resource) })
	slices.SortFunc(r.Unlisted, func(a, b Unlisted) int { return strings.Compare(a.Resource, b.Resource) })
	r.Problems = append([]Problem{}, r.Problems...)
	r.Resources = append([]Resource{}, r.Resources...)
	r.Settings = append([]string{}, r.Settings...)
	r.Unmatched = append([]string{}, r.Unmatched...)
	r.Unlisted = append([]Unlisted{}, r.Unlisted...)
}

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
	// Missing means that the object exists in the cluster, but not on the bus.
	Missing Kind = "missing"
	// Stale means that the version of the object on the bus, or its uid, differs from the one in the
	// cluster.
	Stale Kind = "stale"
	// Extra means that the object exists on the bus, but not in the cluster.
	Extra Kind = "extra"
	// Different means that the bus has the current version, but with other data.
	Different Kind = "different"
	// Misordered means that the events of the object contradict each other.
	Misordered Kind = "misordered"
	// Malformed means that a message violates the format of events.
	Malformed Kind = "malformed"
	// Foreign means that another writer published the message, and the forwarder published the
	// state of the object again after it.
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
	// ResourceVersion is the latest resourceVersion of a list of the cluster, or "" if nothing was
	// listed.
	ResourceVersion string     `json:"resourceVersion"`
	Resources       []Resource `json:"resources"`

	Problems []Problem `json:"problems"`

	// OutOfScope is the number of objects on the bus that the configuration does not select. They
	// are not compared.
	OutOfScope int `json:"outOfScope"`
	// InMotion is the number of objects that changed so often that both sides never showed the same
	// state. The bus kept up with their versions. Their data was not compared.
	InMotion int `json:"inMotion"`
	// OtherVersion is the number of objects whose last event is in an API version that the
	// cluster no longer serves. Their uid and resourceVersion match the cluster. Their data was
	// not compared.
	OtherVersion int `json:"otherVersion"`
	// Settings lists the variables that affect the content of the bus and have a different value here
	// than in the forwarder that wrote to it. Such a difference can be the cause of a problem. The
	// caller of verify.Run sets Settings.
	Settings []string `json:"settingsThatDiffer"`
	// Unmatched lists the selectors that match nothing in the cluster.
	Unmatched []string `json:"unmatched"`
	// Unlisted lists the resources that could not be read. If it is not empty, verify.Run also
	// returns an error.
	Unlisted []Unlisted `json:"unlisted"`
}

// Resource is a resource that was listed.
type Resource struct {
	Resource        string `json:"resource"` // "deployments.apps"
	Version         string `json:"version"`  // API version: "v1"
	Objects         int    `json:"objects"`
	ResourceVersion string `json:"resourceVersion"` // resourceVersion of the list; the latest one of several lists

	// Point is the consistency point at which differences were judged. NoPoint says why no point
	// was used. In that case, each difference had the settle time to disappear.
	Point   *Point `json:"point,omitempty"`
	NoPoint string `json:"noPoint,omitempty"`
	// Settled is the number of objects that were read again until bus and cluster agreed, or until
	// the settle time was over. With a point, these are the objects that changed after the point.
	// Without a point, these are all objects that differed.
	Settled int `json:"settled"`
}

// Point is a consistency point on the bus.
type Point struct {
	ResourceVersion string    `json:"resourceVersion"`
	Time            time.Time `json:"time"`       // when the forwarder's watch had shown everything up to this version
	Age             float64   `json:"ageSeconds"` // age of the point at the comparison
}

// Unlisted is a resource that could not be read.
type Unlisted struct {
	Resource string `json:"resource"`
	Reason   string `json:"reason"`
}

// Partition says up to where a partition of a topic was read. Offset is the offset of the next record.
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
	Name      string `json:"name"`           // "" if the problem concerns no single object
	Cluster   string `json:"clusterVersion"` // resourceVersion in the cluster, or "" if absent or irrelevant
	Bus       string `json:"busVersion"`     // resourceVersion on the bus, or "" if there is none
	Position  uint64 `json:"position"`       // position of the message, or 0 if there is none
	Detail    string `json:"detail"`
	// Point is the resourceVersion of the consistency point at which the difference was found, or
	// "" if it was not found at one.
	Point string `json:"point,omitempty"`

	// Partition is the partition of the record on Kafka, or nil if there is none. If it is set, Position
	// is the offset.
	Partition *int `json:"partition,omitempty"`
}

// differences returns the number of differences between bus and cluster. broken returns the number
// of invalid or misordered messages of Kuberelay.
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

// isUnknown reports whether the bus has no messages of a cluster that has objects. In that case,
// the cluster name is probably wrong.
func (r Report) isUnknown() bool { return r.Objects > 0 && r.Messages == 0 }

// Clean reports whether the report has no problem and everything could be read.
func (r Report) Clean() bool { return len(r.Problems) == 0 && len(r.Unlisted) == 0 }

// SetKey sets the fields that identify the object.
func (p *Problem) SetKey(k event.Key) {
	p.Resource, p.Namespace, p.Name = k.GroupResource().String(), k.Namespace, k.Name
}

// Sort sorts the lists of a report, and replaces nil lists, so that JSON has an empty list and not
// null.
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

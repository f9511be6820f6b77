package verify

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Kind is what is wrong with an object or a message.
type Kind string

const (
	// Missing: it is in the cluster, and the bus does not show it as existing.
	Missing Kind = "missing"
	// Stale: the bus shows another state of it than the cluster has.
	Stale Kind = "stale"
	// Extra: the bus shows it as existing, and it is not in the cluster.
	Extra Kind = "extra"
	// Different: the bus has its present version, with other data.
	Different Kind = "different"
	// Misordered: its events contradict each other.
	Misordered Kind = "misordered"
	// Malformed: a message is not what an event of it should be.
	Malformed Kind = "malformed"
)

// Report is what was found.
type Report struct {
	// Cluster is the name by which the bus was asked for events.
	Cluster string `json:"cluster"`
	// Objects is how many the cluster has of the selected resources.
	Objects int `json:"objects"`
	// Messages is how many of the cluster's were read from the stream, up to
	// Position.
	Messages int    `json:"messages"`
	Position uint64 `json:"position"`
	// Partitions says instead how far topics were read, on Kafka.
	Partitions []Partition `json:"partitions,omitempty"`
	// ResourceVersion is the latest at which a list of the cluster was taken, ""
	// if nothing was listed.
	ResourceVersion string     `json:"resourceVersion"`
	Resources       []Resource `json:"resources"`

	Problems []Problem `json:"problems"`

	// OutOfScope is how many objects the bus shows as existing that the
	// configuration does not select any more. They are not compared.
	OutOfScope int `json:"outOfScope"`
	// InMotion is how many objects changed so often that no state of theirs was
	// seen on both sides. The bus followed their versions; their data was not
	// compared.
	InMotion int `json:"inMotion"`
	// OtherVersion is how many objects have their last event in a version of the API
	// that the cluster does not serve any more. Their uid and resourceVersion are those
	// of the cluster; their data was not compared.
	OtherVersion int `json:"otherVersion"`
	// Unmatched are the selectors that match nothing in the cluster.
	Unmatched []string `json:"unmatched"`
	// Unlisted are the resources that could not be looked at. If there are any,
	// Run returns an error as well.
	Unlisted []Unlisted `json:"unlisted"`
}

// Resource is one that was listed.
type Resource struct {
	Resource        string `json:"resource"` // "deployments.apps"
	Version         string `json:"version"`  // of the API: "v1"
	Objects         int    `json:"objects"`
	ResourceVersion string `json:"resourceVersion"` // of the list, the latest if there are several
}

// Unlisted is a resource that could not be looked at.
type Unlisted struct {
	Resource string `json:"resource"`
	Reason   string `json:"reason"`
}

// Partition is one that was read up to an offset, that of the record to come.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
}

// Problem is one difference between bus and cluster, or one break of order.
type Problem struct {
	Kind      Kind   `json:"problem"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`           // "" of what concerns a whole resource
	Cluster   string `json:"clusterVersion"` // resourceVersion in the cluster, "" if it is not there or of no matter
	Bus       string `json:"busVersion"`     // resourceVersion on the bus, "" if there is none
	Position  uint64 `json:"position"`       // of the message, 0 if there is none
	Detail    string `json:"detail"`

	// Partition is that of the record on Kafka, nil if there is none. Position is then
	// its offset.
	Partition *int `json:"partition,omitempty"`
}

// differences and broken are how many problems are of state, and how many of messages.
func (r Report) differences() int { return len(r.Problems) - r.broken() }

func (r Report) broken() (n int) {
	for _, p := range r.Problems {
		if p.Kind == Misordered || p.Kind == Malformed {
			n++
		}
	}
	return n
}

// isUnknown tells that the bus has nothing at all of a cluster that is not empty, which
// is more likely a wrong name than a wrong bus.
func (r Report) isUnknown() bool { return r.Objects > 0 && r.Messages == 0 }

// Clean tells whether nothing is wrong.
func (r Report) Clean() bool { return len(r.Problems) == 0 && len(r.Unlisted) == 0 }

func (p *Problem) setKey(k event.Key) {
	p.Resource, p.Namespace, p.Name = k.GroupResource().String(), k.Namespace, k.Name
}

// sort puts a report into an order that does not depend on chance, and makes
// its lists lists in JSON where they are empty.
func (r *Report) sort() {
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name), cmp.Compare(a.Position, b.Position), cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Detail, b.Detail))
	})
	slices.SortFunc(r.Resources, func(a, b Resource) int { return strings.Compare(a.Resource, b.Resource) })
	slices.SortFunc(r.Unlisted, func(a, b Unlisted) int { return strings.Compare(a.Resource, b.Resource) })
	r.Problems = append([]Problem{}, r.Problems...)
	r.Resources = append([]Resource{}, r.Resources...)
	r.Unmatched = append([]string{}, r.Unmatched...)
	r.Unlisted = append([]Unlisted{}, r.Unlisted...)
}

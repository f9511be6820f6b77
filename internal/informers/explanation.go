package informers

import (
	"github.com/kuberelay/kuberelay/internal/event"
)

// Explanation says what a [Set] that starts now would watch in a cluster, and of the rest
// why not. A Set that has run for longer may differ where the discovery of a group fails:
// that leaves it as it was. The names of its fields in JSON do not change.
type Explanation struct {
	// Resources are ordered by group and resource.
	Resources []Explained `json:"resources"`
	// NotServed are those that were asked for, and that the cluster does not serve.
	NotServed []NotServed `json:"notServed"`

	// Unmatched are the selectors that match nothing now; they wait. UnmatchedExclude
	// are those of what is excluded.
	Unmatched        []string `json:"unmatched"`
	UnmatchedExclude []string `json:"unmatchedExclude"`

	// FailingGroups are those whose discovery fails, at least of one of their versions.
	FailingGroups []FailingGroup `json:"failingGroups"`

	Namespaces ExplainedNamespaces `json:"namespaces"`

	// Follow are the fields that refer to objects which are watched besides. Which those
	// are depends on the objects.
	Follow []string `json:"follow,omitempty"`

	// The selectors that leave out objects of whatever is watched.
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`

	// Filter and DropFields say which of these are sent by their content, and what of them
	// is not. They are for the caller to fill in.
	Filter     string   `json:"filter,omitempty"`
	DropFields []string `json:"dropFields,omitempty"`

	// Warnings are what may make this explanation wrong.
	Warnings []string `json:"warnings"`
}

// Explained is one resource that the cluster serves.
type Explained struct {
	Name       string   `json:"resource"` // with its group: "deployments.apps"
	Group      string   `json:"group"`
	Version    string   `json:"version"`  // that is watched, or would be
	Versions   []string `json:"versions"` // that are served
	Kind       string   `json:"kind"`
	Namespaced bool     `json:"namespaced"`

	Watched Watched `json:"watched"`
	Reason  Reason  `json:"reason,omitempty"` // "" if it is watched everywhere
	Detail  string  `json:"detail,omitempty"` // a sentence for people, also of what lacks otherwise

	// Selectors are those that match it, in order, and Selector the one that decided.
	Selector   string   `json:"selector,omitempty"`
	Selectors  []string `json:"selectors"`
	ExcludedBy string   `json:"excludedBy,omitempty"`

	// Scope is that of its watches, "" if it is not selected. Namespaces are those that
	// are watched one by one, and ScopeDetail says why so.
	Scope       Scope    `json:"scope,omitempty"`
	Namespaces  []string `json:"namespaces"`
	ScopeDetail string   `json:"scopeDetail,omitempty"`

	// Forbidden is what we may not do with it. Without list and watch it is not watched
	// there; without get no delete that nobody saw can be confirmed.
	Forbidden []Refusal `json:"forbidden"`

	// GroupError is why the discovery of its group fails, "" if it does not.
	GroupError string `json:"groupError,omitempty"`
	// ListError is why a list of it fails. That is tried only of what was asked for.
	ListError string `json:"listError,omitempty"`

	resource event.Resource
}

// Watched tells whether a resource is watched.
type Watched string

// Partly is in some of the selected namespaces.
const (
	Everywhere Watched = "yes"
	Partly     Watched = "partly"
	Nowhere    Watched = "no"
)

// Scope is what a watch covers.
type Scope string

// The scopes: of cluster-scoped resources, of one watch of all namespaces, and of one of
// each.
const (
	ClusterScope       Scope = "cluster"
	AllNamespacesScope Scope = "all_namespaces"
	NamespacesScope    Scope = "namespaces"
)

// Refusal is what may not be done in a namespace, "" for all of them or for what is
// cluster-scoped.
type Refusal struct {
	Namespace string   `json:"namespace"`
	Verbs     []string `json:"verbs"`
	Reason    string   `json:"reason,omitempty"` // as the API server gave it
}

// NotServed is a resource that was asked for by a name that means nothing in the cluster.
type NotServed struct {
	Asked  string `json:"asked"`
	Detail string `json:"detail"`
}

// FailingGroup is an API group, "" for the core group.
type FailingGroup struct {
	Group string `json:"group"`
	Error string `json:"error"`
}

// ExplainedNamespaces are those in which objects are selected.
type ExplainedNamespaces struct {
	All bool `json:"all"` // every namespace, always
	// Selected is null where all are, and where it cannot be told which.
	Selected []string `json:"selected"`
	// NotFound are those that are named and do not exist, as far as that can be told.
	NotFound []string `json:"notFound"`
	// Error is why it cannot be told which are selected.
	Error string `json:"error,omitempty"`
}

// The reasons that lie in what we may do, and in the namespaces.
const (
	NotAllowed        Reason = "forbidden"
	NamespacesUnknown Reason = "namespaces_unreadable"
	NoNamespaces      Reason = "no_namespaces"
	ListFails         Reason = "list_fails"
)

package explain

import (
	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
)

// Explanation lists the resources that a forwarder would watch in a cluster if it started now, and
// why it would not watch the others. A running forwarder can differ for a group whose discovery
// fails, because it continues its existing watches. The JSON field names are stable.
type Explanation struct {
	// Resources are ordered by group and resource.
	Resources []Explained `json:"resources"`
	// NotServed lists the requested resources that the cluster does not serve.
	NotServed []NotServed `json:"notServed"`

	// Unmatched lists the selectors that match nothing yet. UnmatchedExclude lists the exclusions
	// that match nothing.
	Unmatched        []string `json:"unmatched"`
	UnmatchedExclude []string `json:"unmatchedExclude"`
	// Suggestions contains a similar name, if one exists, for each unmatched entry and for each
	// named namespace that does not exist.
	Suggestions map[string]string `json:"suggestions,omitempty"`

	// FailingGroups lists the groups for which the discovery of at least one version fails.
	FailingGroups []FailingGroup `json:"failingGroups"`

	Namespaces ExplainedNamespaces `json:"namespaces"`

	// Follow lists the fields whose references select more objects. Which objects these are depends on
	// the content of the selected objects.
	Follow []string `json:"follow,omitempty"`

	// The selectors that apply to the objects of every resource.
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`

	// Filter and DropFields select objects and fields by content. HashFields lists the hashed
	// fields of the watched resources. ReadableFields lists the fields of these resources that are
	// known to hold secrets, but are neither dropped nor hashed. The caller sets all of these.
	Filter         string   `json:"filter,omitempty"`
	DropFields     []string `json:"dropFields,omitempty"`
	HashFields     []string `json:"hashFields,omitempty"`
	ReadableFields []string `json:"readableFields,omitempty"`

	// UnmatchedFields lists the entries of KUBERELAY_DROP_FIELDS and KUBERELAY_HASH_FIELDS that match
	// no watched resource. The caller sets it.
	UnmatchedFields []string `json:"unmatchedFields,omitempty"`
	// UnmatchedFollow lists the entries of Follow that concern neither a watched resource nor a
	// resource in Followable.
	UnmatchedFollow []string         `json:"unmatchedFollow,omitempty"`
	Followable      []event.Resource `json:"-"` // resources that are watched if other objects refer to them

	// Warnings lists reasons why this explanation might be wrong.
	Warnings []string `json:"warnings"`
}

// Explained is one resource that the cluster serves.
type Explained struct {
	Name       string   `json:"resource"` // name with the group: "deployments.apps"
	Group      string   `json:"group"`
	Version    string   `json:"version"`  // the version that is or would be watched
	Versions   []string `json:"versions"` // all served versions
	Kind       string   `json:"kind"`
	Namespaced bool     `json:"namespaced"`

	Watched Watched          `json:"watched"`
	Reason  discovery.Reason `json:"reason,omitempty"` // "" if it is watched everywhere
	Detail  string           `json:"detail,omitempty"` // a sentence for people, which can name other missing permissions

	// Selectors lists the selectors that match, in order. Selector is the one that decided.
	Selector   string   `json:"selector,omitempty"`
	Selectors  []string `json:"selectors"`
	ExcludedBy string   `json:"excludedBy,omitempty"`

	// Scope is the scope of the watches, or "" if the resource is not selected. Namespaces lists
	// the namespaces that have their own watch. ScopeDetail is the reason for the scope.
	Scope       Scope    `json:"scope,omitempty"`
	Namespaces  []string `json:"namespaces"`
	ScopeDetail string   `json:"scopeDetail,omitempty"`

	// Forbidden lists the missing permissions. Without list and watch, the resource is not watched.
	// Without get, the forwarder cannot confirm a delete that the watch missed.
	Forbidden []Refusal `json:"forbidden"`

	// GroupError is the error of the discovery of the group, or "" if discovery succeeds.
	GroupError string `json:"groupError,omitempty"`
	// ListError is the error of listing one object, or "". Only the resources that [Question.Only]
	// names are listed.
	ListError string `json:"listError,omitempty"`

	Resource event.Resource `json:"-"` // the resource in the version that is or would be watched
}

// Watched returns the resources that are watched, at least in part.
func (x Explanation) Watched() (all []Explained) {
	for _, r := range x.Resources {
		if r.Watched != Nowhere {
			all = append(all, r)
		}
	}
	return all
}

// Watched is the extent to which a resource is watched.
type Watched string

// Partly means in some of the selected namespaces.
const (
	Everywhere Watched = "yes"
	Partly     Watched = "partly"
	Nowhere    Watched = "no"
)

// Scope is the scope of a watch.
type Scope string

// The scopes: cluster-scoped, one watch of all namespaces, one watch for each namespace.
const (
	ClusterScope       Scope = "cluster"
	AllNamespacesScope Scope = "all_namespaces"
	NamespacesScope    Scope = "namespaces"
)

// Refusal is a set of forbidden verbs in a namespace. The namespace is "" for all namespaces and
// for cluster-scoped resources.
type Refusal struct {
	Namespace string   `json:"namespace"`
	Verbs     []string `json:"verbs"`
	Reason    string   `json:"reason,omitempty"` // reason that the API server gave
}

// NotServed is a requested name that matches no resource of the cluster.
type NotServed struct {
	Asked  string `json:"asked"`
	Detail string `json:"detail"`
}

// FailingGroup is an API group whose discovery fails. Group is "" for the core group.
type FailingGroup struct {
	Group string `json:"group"`
	Error string `json:"error"`
}

// ExplainedNamespaces is the selection of namespaces.
type ExplainedNamespaces struct {
	All bool `json:"all"` // every namespace, always
	// Selected is null if all namespaces are selected, or if the selection is unknown.
	Selected []string `json:"selected"`
	// NotFound lists the named namespaces that are known not to exist.
	NotFound []string `json:"notFound"`
	// Error is the reason why the selection is unknown.
	Error string `json:"error,omitempty"`
}

// The reasons that follow from permissions and namespaces.
const (
	NotAllowed        discovery.Reason = "forbidden"
	NamespacesUnknown discovery.Reason = "namespaces_unreadable"
	NoNamespaces      discovery.Reason = "no_namespaces"
	ListFails         discovery.Reason = "list_fails"
)

// Package health summarizes the state of a cluster's informers for the readiness check, the status,
// and the metrics.
package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
)

// State is the state of an informer.
type State string

// The states of an informer. A degraded informer retries forever and keeps its objects.
const (
	Starting State = "starting" // the first list is not complete
	Synced   State = "synced"
	Degraded State = "degraded" // the last list or watch failed
)

// Worse reports whether a is a worse state than b.
func (a State) Worse(b State) bool {
	order := []State{Synced, Starting, Degraded}
	return slices.Index(order, a) > slices.Index(order, b)
}

// Status is the state of one informer.
type Status struct {
	Resource  event.Resource
	Namespace string // "" for all namespaces
	State     State
	Reason    string // why the informer is degraded, one of a fixed set; otherwise ""
	Since     time.Time
	Synced    bool // the first list is complete, even if the informer is degraded now
	Objects   int
	Failing   error // the error of the last list or watch, nil for none
}

// Report contains the status of every informer, ordered by group, resource, and namespace.
type Report []Status

// OfNamespaces returns the status of the watch that the selection of namespaces needs, while this watch
// fails.
func OfNamespaces(n *discovery.Namespaces) Report {
	err, since := n.Failing()
	if err == nil {
		return nil
	}
	r := event.Resource{Version: discovery.NamespaceResource.Version, Resource: discovery.NamespaceResource.Resource, Kind: "Namespace"}
	return Report{{Resource: r, State: Degraded, Reason: discovery.ErrorReason(err), Since: since, Synced: true, Failing: err}}
}

// Ready returns nil when every informer has synced. It ignores informers that RBAC forbids, unless
// RBAC forbids all of them. Its error names the resources that are not ready.
func (r Report) Ready() error {
	var waiting []string          // each resource once, although each namespace can have an informer
	failing := map[string]error{} // the first error of each resource
	var forbidden error
	readable := 0
	for _, st := range r {
		switch {
		case !apierrors.IsForbidden(st.Failing):
			readable++
		case forbidden == nil:
			forbidden = st.Failing
		}
		if !st.Synced && !apierrors.IsForbidden(st.Failing) {
			name := st.Resource.GroupResource().String()
			if len(waiting) == 0 || waiting[len(waiting)-1] != name { // r is ordered by resource
				waiting = append(waiting, name)
			}
			failing[name] = cmp.Or(failing[name], st.Failing)
		}
	}
	switch {
	case len(waiting) > 0:
	case forbidden != nil && readable == 0:
		return fmt.Errorf("access denied to all %d selected resources; grant get, list, and watch, or name the readable namespaces in KUBERELAY_NAMESPACES: %w", len(r.resources()), forbidden)
	default:
		return nil
	}
	const show = 3
	more := ""
	if len(waiting) > show {
		waiting, more = waiting[:show], fmt.Sprintf(" and %d more", len(waiting)-show)
	}
	for i, name := range waiting {
		if err := failing[name]; err != nil {
			waiting[i] += " (" + err.Error() + ")"
		}
	}
	return fmt.Errorf("not synced: %s%s", strings.Join(waiting, ", "), more)
}

// Listing returns the number of resources whose first list is in progress, and the total number of
// watched resources.
func (r Report) Listing() (listing, all int) {
	return r.countResources(func(st Status) bool { return st.State == Starting })
}

// Forbidden returns the number of resources to which access is denied in at least one namespace, and
// the total number of watched resources.
func (r Report) Forbidden() (forbidden, all int) {
	return r.countResources(func(st Status) bool { return apierrors.IsForbidden(st.Failing) })
}

// Failing returns the number of resources whose last list or watch failed for a reason other than
// denied access, the total number of watched resources, and one of the errors.
func (r Report) Failing() (failing, all int, err error) {
	failing, all = r.countResources(func(st Status) bool {
		is := st.Failing != nil && !apierrors.IsForbidden(st.Failing)
		if is && err == nil {
			err = st.Failing
		}
		return is
	})
	return failing, all, err
}

// countResources counts the resources with at least one informer that matches, and all resources.
func (r Report) countResources(matches func(Status) bool) (n, all int) {
	resources := r.resources()
	for _, informers := range resources {
		if slices.ContainsFunc(informers, matches) {
			n++
		}
	}
	return n, len(resources)
}

// resources returns the informers of each resource.
func (r Report) resources() map[schema.GroupResource][]Status {
	all := map[schema.GroupResource][]Status{}
	for _, st := range r {
		gr := st.Resource.GroupResource()
		all[gr] = append(all[gr], st)
	}
	return all
}

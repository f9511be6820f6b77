package check

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kuberelay/kuberelay/internal/explain"
)

// permissionChecks returns the checks of the permissions in the cluster (docs/install.md).
func permissionChecks() []Check {
	const group = "permissions"
	return []Check{
		{ID: "permission-list", Group: group, check: mayRead("list", "without it, the resource is not watched")},
		{ID: "permission-watch", Group: group, check: mayRead("watch", "without it, the resource is not watched")},
		{ID: "permission-get", Group: group, check: mayRead("get", "without it, a delete that no watch reported cannot be confirmed")},
		{ID: "permission-cluster-identity", Group: group, check: withServer(checkIdentity)},
		{ID: "permission-definitions", Group: group, check: withServer(checkDefinitions)},
		{ID: "permission-namespaces", Group: group, check: withServer(checkNamespaceRights)},
		{ID: "permission-lease", Group: group, check: withServer(checkLeaseRights)},
		{ID: "permission-reviews", Group: group, check: withServer(checkReviewRights)},
	}
}

const (
	definitionGroup = "apiextensions.k8s.io"
	serviceGroup    = "apiregistration.k8s.io"
	leaseGroup      = "coordination.k8s.io"
)

func definitionRights() []Right {
	var all []Right
	for _, verb := range []string{"get", "list", "watch"} {
		all = append(all, Right{Verb: verb, Group: definitionGroup, Resource: "customresourcedefinitions"})
	}
	for _, verb := range []string{"list", "watch"} {
		all = append(all, Right{Verb: verb, Group: serviceGroup, Resource: "apiservices"})
	}
	return all
}

// watchesNamespaces reports whether the forwarder watches namespaces to select some of them. See
// [discovery.Namespaces.NeedsWatch].
func (f *Facts) watchesNamespaces() bool {
	w := f.Settings.Watch
	return w.NamespaceSelector != "" || len(w.Namespaces) == 0 && len(w.ExcludeNamespaces) > 0
}

// watchesAllNamespaces reports whether the forwarder can select namespaces without listing them. It can
// if the settings only exclude names, and one watch of all namespaces covers every selected resource.
func (f *Facts) watchesAllNamespaces() bool {
	return f.Settings.Watch.NamespaceSelector == "" && !slices.ContainsFunc(f.Selection.Resources, func(r explain.Explained) bool {
		return r.Scope == explain.NamespacesScope || r.Scope == explain.AllNamespacesScope && r.Watched != explain.Everywhere
	})
}

func (f *Facts) namespaceRights() (all []Right) {
	if f.watchesNamespaces() {
		return []Right{{Verb: "list", Resource: "namespaces"}, {Verb: "watch", Resource: "namespaces"}}
	}
	for _, namespace := range f.Settings.Watch.Namespaces {
		all = append(all, Right{Verb: "list", Resource: "namespaces", Name: namespace})
	}
	return all
}

func (f *Facts) leaseRights() []Right {
	of := func(verb, name string) Right {
		return Right{Verb: verb, Group: leaseGroup, Resource: "leases", Namespace: f.Lease.Namespace, Name: name}
	}
	all := []Right{of("get", f.Lease.Name), of("update", f.Lease.Name)}
	if !f.Lease.Exists {
		all = append(all, of("create", ""))
	}
	return all
}

func reviewRights() []Right {
	return []Right{
		{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
	}
}

// NeededRights returns the permissions to check with the API server. They depend on the settings
// and the Lease. They do not include the permissions on watched resources, which [Facts.Selection]
// contains.
func (f *Facts) NeededRights() []Right {
	return slices.Concat(definitionRights(), f.namespaceRights(), f.leaseRights(), reviewRights())
}

// lacking lists the rights that the API server denies. err is the reason why a right is unknown.
func (f *Facts) lacking(rights []Right) (denied []string, err error) {
	for _, r := range rights {
		answer, asked := f.Rights[r]
		switch {
		case !asked:
			return nil, fmt.Errorf("%s was not checked", r)
		case answer.Err != nil:
			return nil, answer.Err
		case !answer.Allowed:
			denied = append(denied, r.String())
		}
	}
	return denied, nil
}

// String describes a right in a few words.
func (r Right) String() string {
	s := r.Verb + " " + r.Resource
	if r.Group != "" {
		s += "." + r.Group
	}
	if r.Name != "" {
		s += "/" + r.Name
	}
	if r.Namespace != "" {
		s += " in the namespace " + r.Namespace
	}
	return s
}

// mayRead returns the check of the permission for a verb on every selected resource.
func mayRead(verb, without string) func(*Facts) verdict {
	return withSelection(func(f *Facts) verdict {
		var denied []string
		selected := 0
		for _, r := range f.Selection.Resources {
			if r.Scope == "" {
				continue
			}
			selected++
			for _, refusal := range r.Forbidden {
				if !slices.Contains(refusal.Verbs, verb) {
					continue
				}
				name := r.Name
				if refusal.Namespace != "" {
					name += " in the namespace " + refusal.Namespace
				}
				denied = append(denied, name)
			}
		}
		switch {
		case selected == 0:
			return skip("no resource is selected")
		case len(f.Selection.Warnings) > 0 && len(denied) == 0:
			return skip("%s", strings.Join(f.Selection.Warnings, "; "))
		case len(denied) > 0:
			decide := warn
			if verb != "get" && len(f.Selection.Watched()) == 0 {
				decide = fail
			}
			return decide(fmt.Sprintf("grant %s, or remove the resource from KUBERELAY_RESOURCES; if the user may read only some namespaces, name them in KUBERELAY_NAMESPACES", verb),
				"the user may not %s %s; %s", verb, names(denied), without)
		}
		return pass("the user may %s every selected resource", verb)
	})
}

func checkIdentity(f *Facts) verdict {
	const fix = "grant get on the namespace kube-system"
	switch err := f.Server.UIDErr; {
	case err == nil:
		return pass("the namespace kube-system has the UID %s", f.Server.UID)
	case apierrors.IsNotFound(err) && f.Settings.Event.ClusterName != "":
		return warn("make sure that no other cluster on the bus has this name", "the cluster has no namespace kube-system, so another cluster with its name goes undetected")
	case f.Settings.Event.ClusterReplaces != "":
		return fail(fix, "KUBERELAY_CLUSTER_REPLACES is set, and the namespace kube-system cannot be read: %v", err)
	case f.Settings.Event.ClusterName != "":
		return warn(fix, "the namespace kube-system cannot be read, so another cluster with this name on the bus goes undetected: %v", err)
	default:
		return fail(fix+", or set KUBERELAY_CLUSTER_NAME", "the cluster has no name, because the namespace kube-system cannot be read: %v", err)
	}
}

func checkDefinitions(f *Facts) verdict {
	denied, err := f.lacking(definitionRights())
	switch {
	case err != nil:
		return skip("the API server does not respond to permission checks: %v", err)
	case len(denied) > 0:
		return warn("grant them", "the user may not %s, so new resources are found by polling, and the deletes of a removed custom resource might be missed", names(denied))
	}
	return pass("the user may read CustomResourceDefinitions and APIServices")
}

func checkNamespaceRights(f *Facts) verdict {
	rights := f.namespaceRights()
	denied, err := f.lacking(rights)
	switch {
	case len(rights) == 0:
		return skip("all namespaces are selected")
	case err != nil:
		return skip("the API server does not respond to permission checks: %v", err)
	case len(denied) > 0 && f.watchesNamespaces() && !f.watchesAllNamespaces():
		return fail("grant them, or name the namespaces in KUBERELAY_NAMESPACES", "the user may not %s, so no namespace can be selected", names(denied))
	case len(denied) > 0 && f.watchesNamespaces():
		return warn("grant them", "the user may not %s, so a misspelled name in KUBERELAY_EXCLUDE_NAMESPACES goes unnoticed", names(denied))
	case len(denied) > 0:
		return warn("grant them in a ClusterRole", "the user may not %s. If such a namespace is removed with its Role, the deletes of its objects might be missed", names(denied))
	}
	return pass("the user may read the namespaces")
}

func checkLeaseRights(f *Facts) verdict {
	denied, err := f.lacking(f.leaseRights())
	switch {
	case !f.Settings.Leader.Election:
		return skip("KUBERELAY_LEADER_ELECTION is false")
	case err != nil:
		return skip("the API server does not respond to permission checks: %v", err)
	case len(denied) > 0:
		return fail("grant them, or set KUBERELAY_LEASE_NAMESPACE to a namespace where they are granted", "the user may not %s, so no forwarder can lead", names(denied))
	}
	return pass("the user may hold the Lease %s/%s", f.Lease.Namespace, f.Lease.Name)
}

func checkReviewRights(f *Facts) verdict {
	denied, err := f.lacking(reviewRights())
	switch {
	case !f.Settings.Operations.MetricsAuth:
		return skip("KUBERELAY_METRICS_AUTH is false")
	case err != nil:
		return skip("the API server does not respond to permission checks: %v", err)
	case len(denied) > 0:
		return fail("bind the ClusterRole system:auth-delegator to the service account", "the user may not %s, so scrapes of /metrics get status 503", names(denied))
	}
	return pass("the user may review the tokens of scrapes")
}

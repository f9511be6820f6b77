package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
)

// The permissions that the forwarder needs for every selection.
var (
	ofDefinitions = []string{
		"get,list,watch customresourcedefinitions.apiextensions.k8s.io",
		"list,watch apiservices.apiregistration.k8s.io",
	}
	ofLease    = []string{"get,update leases.coordination.k8s.io/kr-kuberelay"}
	ofIdentity = []string{"get namespaces/kube-system"}
	always     = slices.Concat(ofDefinitions, ofIdentity)
)

// TestRights verifies that the service account may do exactly what each case lists, cluster-wide
// and in each namespace.
func TestRights(t *testing.T) {
	for name, c := range map[string]struct {
		config, rbac values
		cluster      []string            // in addition to always, unless exactly is set
		exactly      bool                // cluster is the complete list
		in           map[string][]string // by namespace
	}{
		"resources, also by version and without a group": {
			config:  values{"resources": []string{"pods", "deployments.apps", "deployments.v1.apps", "jobs", "widgets.v1beta1.example.com"}},
			cluster: []string{"get,list,watch pods", "get,list,watch deployments.apps", "get,list,watch jobs.batch", "get,list,watch widgets.example.com"},
		},
		"a whole built-in group, and one of it": {
			config: values{"resources": []string{"*.apps", "deployments.apps"}},
			cluster: []string{
				"get,list,watch controllerrevisions.apps", "get,list,watch daemonsets.apps", "get,list,watch deployments.apps",
				"get,list,watch replicasets.apps", "get,list,watch statefulsets.apps",
			},
		},
		"a whole built-in group but some": {
			config: values{"resources": []string{"*.apps"}, "excludeResources": []string{"controllerrevisions.apps", "replicasets.apps"}},
			cluster: []string{
				"get,list,watch daemonsets.apps", "get,list,watch deployments.apps", "get,list,watch statefulsets.apps",
			},
		},
		"a group whose resources no wildcard selects": {
			config: values{"resources": []string{"*.coordination.k8s.io"}},
		},
		"a whole group with its subresources": {
			config: values{"resources": []string{"*.cert-manager.io"}}, rbac: values{"groupsWithSubresources": []string{"cert-manager.io", "other.example.com"}},
			cluster: []string{"get,list,watch *.cert-manager.io"},
		},
		"all but built-in resources, with the subresources of a group": {
			config:  values{"resources": []string{"*"}, "excludeResources": allBuiltInGroups(t)},
			rbac:    values{"groupsWithSubresources": []string{"cert-manager.io"}},
			cluster: []string{"get,list,watch *.cert-manager.io"},
		},
		"excluded, by a name, a group": {
			config: values{
				"resources":        []string{"pods", "configmaps", "services", "deployments.apps", "jobs.batch"},
				"excludeResources": []string{"configmaps", "*.apps", "jobs"},
			},
			cluster: []string{"get,list,watch pods", "get,list,watch services"},
		},
		"excluded by a version, which may not be served": {
			config: values{
				"resources":        []string{"deployments.apps", "widgets.example.com"},
				"excludeResources": []string{"deployments.v1beta1.apps", "widgets.v1.example.com"},
			},
			cluster: []string{"get,list,watch deployments.apps", "get,list,watch widgets.example.com"},
		},
		"Secrets, named and allowed": {
			config: values{"resources": []string{"secrets"}}, rbac: values{"secrets": true},
			cluster: []string{"get,list,watch secrets"},
		},
		"Secrets, named and excluded": {
			config:  values{"resources": []string{"pods", "secrets"}, "excludeResources": []string{"secrets"}},
			cluster: []string{"get,list,watch pods"},
		},
		"namespaces": {
			config: values{"resources": []string{"pods", "nodes", "deployments.apps"}, "namespaces": []string{"a", "b"}},
			in: map[string][]string{
				"a": {"get,list,watch pods", "get,list,watch deployments.apps"}, "b": {"get,list,watch pods", "get,list,watch deployments.apps"},
			},
			cluster: []string{"get,list,watch nodes"},
		},
		"namespaces less some": {
			config: values{"resources": []string{"pods"}, "namespaces": []string{"a", "b"}, "excludeNamespaces": []string{"b"}},
			in:     map[string][]string{"a": {"get,list,watch pods"}},
		},
		"a group in namespaces, with what of it is cluster-scoped": {
			config: values{"resources": []string{"*.storage.k8s.io"}, "namespaces": []string{"a"}, "excludeResources": []string{"volumeattachments.storage.k8s.io"}},
			in:     map[string][]string{"a": {"get,list,watch csistoragecapacities.storage.k8s.io"}},
			cluster: []string{
				"get,list,watch csidrivers.storage.k8s.io", "get,list,watch csinodes.storage.k8s.io",
				"get,list,watch storageclasses.storage.k8s.io", "get,list,watch volumeattributesclasses.storage.k8s.io",
			},
		},
		"custom resources in namespaces, and one that is cluster-scoped": {
			config: values{"resources": []string{"*.cert-manager.io", "gears.example.com", "bolts.example.com"}, "namespaces": []string{"a"}},
			rbac: values{
				"clusterScoped":          []string{"clusterissuers.cert-manager.io", "bolts.example.com", "other.example.org"},
				"groupsWithSubresources": []string{"cert-manager.io"},
			},
			in:      map[string][]string{"a": {"get,list,watch *.cert-manager.io", "get,list,watch gears.example.com"}},
			cluster: []string{"get,list,watch clusterissuers.cert-manager.io", "get,list,watch bolts.example.com"},
		},
		"a namespace selector": {
			config:  values{"resources": []string{"pods"}, "namespaceSelector": "team=a"},
			cluster: []string{"get,list,watch pods", "list,watch namespaces"},
		},
		"a namespace selector within namespaces": {
			config:  values{"resources": []string{"pods"}, "namespaceSelector": "team=a", "namespaces": []string{"a"}},
			in:      map[string][]string{"a": {"get,list,watch pods"}},
			cluster: []string{"list,watch namespaces"},
		},
		"all namespaces but one": {
			config:  values{"resources": []string{"pods"}, "excludeNamespaces": []string{"kube-system"}},
			cluster: []string{"get,list,watch pods", "list,watch namespaces"},
		},
		"nothing but what is watched": {
			config:  values{"resources": []string{"pods"}, "clusterName": "c"},
			rbac:    values{"definitions": false, "clusterIdentity": false, "namespaces": false},
			cluster: []string{"get,list,watch pods"}, exactly: true,
		},
		"nothing in the cluster": {
			config: values{"resources": []string{"pods"}, "clusterName": "c", "namespaces": []string{"a"}},
			rbac:   values{"definitions": false, "clusterIdentity": false, "namespaces": false},
			in:     map[string][]string{"a": {"get,list,watch pods"}}, exactly: true,
		},
		"more rules, in the cluster": {
			config:  values{"resources": []string{"pods"}, "follow": []string{"ownerReferences"}},
			rbac:    values{"extraRules": []any{rule("apps", "replicasets", "get", "list", "watch")}, "extraClusterRules": []any{rule("", "nodes", "get")}},
			cluster: []string{"get,list,watch pods", "get,list,watch replicasets.apps", "get nodes"},
		},
		"more rules, in a namespace": {
			config:  values{"resources": []string{"pods"}, "namespaces": []string{"a"}},
			rbac:    values{"extraRules": []any{rule("apps", "replicasets", "get", "list", "watch")}, "extraClusterRules": []any{rule("", "nodes", "get")}},
			in:      map[string][]string{"a": {"get,list,watch pods", "get,list,watch replicasets.apps"}},
			cluster: []string{"get nodes"},
		},
		"a leader is elected": {
			config: values{"resources": []string{"pods"}, "natsUrl": []string{"nats://nats:4222"}}, cluster: []string{"get,list,watch pods"},
			in: map[string][]string{"kuberelay": ofLease},
		},
		"a leader is elected, and namespaces": {
			config: values{"resources": []string{"pods"}, "namespaces": []string{"a", "kuberelay"}, "sink": "kafka", "kafkaBrokers": []string{"kafka"}},
			in:     map[string][]string{"a": {"get,list,watch pods"}, "kuberelay": append([]string{"get,list,watch pods"}, ofLease...)},
		},
		"no leader is elected": {
			config:  values{"resources": []string{"pods"}, "natsUrl": []string{"nats://nats:4222"}, "leaderElection": false},
			cluster: []string{"get,list,watch pods"},
		},
		"texts instead of lists": {
			config: values{"resources": "*.cert-manager.io", "excludeResources": "pods", "namespaces": "a", "excludeNamespaces": "b"},
			rbac:   values{"clusterScoped": "clusterissuers.cert-manager.io", "groupsWithSubresources": "cert-manager.io"},
			in:     map[string][]string{"a": {"get,list,watch *.cert-manager.io"}}, cluster: []string{"get,list,watch clusterissuers.cert-manager.io"},
		},
		"an excluded resource and an excluded namespace that are texts": {
			config: values{"resources": []string{"pods", "services"}, "excludeResources": "pods", "namespaces": []string{"a", "b"}, "excludeNamespaces": "b"},
			in:     map[string][]string{"a": {"get,list,watch services"}},
		},
		"none made": {
			config: values{"resources": []string{"Deployment"}}, rbac: values{"create": false}, exactly: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := values{"config": c.config}
			if c.rbac != nil {
				v["rbac"] = c.rbac
			}
			want := map[string][]string{"": c.cluster}
			if !c.exactly {
				want[""] = slices.Concat(c.cluster, always)
			}
			if c.config["namespaces"] != nil && c.config["namespaceSelector"] == nil && !c.exactly {
				want[""] = append(want[""], "get,list namespaces/"+strings.Join(slices.Sorted(maps.Keys(c.in)), ","))
			}
			if len(want[""]) == 0 {
				delete(want, "")
			}
			for namespace, rules := range c.in {
				want[namespace] = rules
			}
			for _, rules := range want {
				slices.Sort(rules)
			}
			if diff := cmp.Diff(want, granted(t, render(t, "kuberelay", v), rbacv1.Subject{Kind: "ServiceAccount", Name: "kr-kuberelay", Namespace: "kuberelay"})); diff != "" {
				t.Errorf("permissions by namespace, \"\" for cluster-wide (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWideRightsAreRefused verifies that two selections need an opt-in value, which the error
// names: Secrets, and groups with resources that the chart doesn't know.
func TestWideRightsAreRefused(t *testing.T) {
	for _, resources := range [][]string{{"secrets"}, {"*", "secrets"}, {"secrets", "*"}} {
		refused(t, values{
			"config": values{"resources": resources},
			"rbac":   values{"groupsWithSubresources": []string{"cert-manager.io"}},
		}, "config.resources: secrets: ", "set rbac.secrets=true")
	}
	refused(t, values{
		"config": values{"resources": []string{"pods", "*.cert-manager.io"}},
		"rbac":   values{"secrets": true, "groupsWithSubresources": []string{"acme.cert-manager.io"}},
	}, "config.resources: *.cert-manager.io: ", "rbac.groupsWithSubresources={cert-manager.io}")
	for _, group := range []string{"", "*", "*.example.com", "core/pods"} {
		refused(t, values{
			"config": values{"resources": []string{"*"}},
			"rbac":   values{"groupsWithSubresources": []string{group}},
		}, "at '/rbac/groupsWithSubresources/0'")
	}
}

// allBuiltInGroups returns selectors that together match every built-in resource that a wildcard
// selects.
func allBuiltInGroups(t *testing.T) (selectors []string) {
	t.Helper()
	for _, r := range knownResources(t).Resources {
		selector := "*." + r.Group
		if r.Group == "" {
			selector = r.Name
		}
		selectors = append(selectors, selector)
	}
	slices.Sort(selectors)
	return slices.Compact(selectors)
}

// TestSelectorsThatAreRefused_Slow verifies that the error for a selector without an RBAC equivalent
// says what to write instead.
func TestSelectorsThatAreRefused_Slow(t *testing.T) {
	for selector, words := range map[string]string{
		"deploy":             "write deployments.apps",
		"Deployment":         "write deployments.apps",
		"deployment.apps":    "write deployments.apps",
		"deploy.v1.apps":     "write deployments.apps",
		"po":                 "write pods",
		"no":                 "write nodes",
		"Pod":                "write pods",
		"Widget.example.com": "such as widgets.example.com",
		"gadgets":            "such as gadgets.example.com",
		"pods.v1":            "write pods",
		"po*":                "write *.apps for a whole group",
		"pods/log":           "a subresource cannot be watched",
		"*.":                 "a part before, after, or between dots is empty",
		"pods.":              "a part before, after, or between dots is empty",
		".apps":              "a part before, after, or between dots is empty",
		"a..b":               "a part before, after, or between dots is empty",
		"*.core":             "the core group has no name",
		"pods.core":          "the core group has no name",
		"*.v1":               "without a version",
		"*.v1.apps":          "without a version",
		"*.*":                "write *.apps for a whole group",
		"pods_.apps":         "not the name of a resource",
		"pods.App":           "not the name of a group",
	} {
		t.Run(selector, func(t *testing.T) {
			for _, list := range []string{"resources", "excludeResources"} {
				config := values{"resources": []string{"configmaps"}}
				config[list] = []string{"configmaps", selector}
				refused(t, values{"config": config}, "config."+list+": ", words)
			}
		})
	}
}

func rule(group, resource string, verbs ...string) values {
	return values{"apiGroups": []string{group}, "resources": []string{resource}, "verbs": verbs}
}

// granted returns the permissions that the manifests grant to the subject, by namespace. The key ""
// holds the cluster-wide permissions. Every binding must have that subject and an existing role,
// and every role must be bound.
func granted(t *testing.T, m manifests, want rbacv1.Subject) map[string][]string {
	t.Helper()
	roles, got := map[string][]string{}, map[string][]string{}
	for _, o := range m.of("ClusterRole") {
		roles["ClusterRole "+o.GetName()] = flatten(convert[rbacv1.ClusterRole](t, o).Rules)
	}
	for _, o := range m.of("Role") {
		roles["Role "+o.GetNamespace()+"/"+o.GetName()] = flatten(convert[rbacv1.Role](t, o).Rules)
	}
	bind := func(namespace, role string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		rules, ok := roles[role]
		if !ok || ref.APIGroup != rbacv1.GroupName || len(subjects) != 1 || subjects[0] != want {
			t.Errorf("a binding in %q of %s to %v", namespace, role, subjects)
		}
		delete(roles, role)
		got[namespace] = slices.Concat(got[namespace], rules)
	}
	for _, o := range m.of("ClusterRoleBinding") {
		b := convert[rbacv1.ClusterRoleBinding](t, o)
		bind("", b.RoleRef.Kind+" "+b.RoleRef.Name, b.RoleRef, b.Subjects)
	}
	for _, o := range m.of("RoleBinding") {
		b := convert[rbacv1.RoleBinding](t, o)
		bind(b.Namespace, b.RoleRef.Kind+" "+b.Namespace+"/"+b.RoleRef.Name, b.RoleRef, b.Subjects)
	}
	for role := range roles {
		t.Errorf("%s is not bound", role)
	}
	for namespace, rules := range got {
		slices.Sort(rules)
		got[namespace] = slices.Compact(rules)
	}
	return got
}

// flatten returns a line for each resource of each rule.
func flatten(rules []rbacv1.PolicyRule) (lines []string) {
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				line := strings.Join(r.Verbs, ",") + " " + resource
				if group != "" {
					line += "." + group
				}
				if len(r.ResourceNames) > 0 {
					line += "/" + strings.Join(r.ResourceNames, ",")
				}
				lines = append(lines, line)
			}
		}
		for _, path := range r.NonResourceURLs {
			lines = append(lines, fmt.Sprint(r.Verbs, path))
		}
	}
	return lines
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kuberelay/kuberelay/internal/explain"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

// forResources has the manifests of a cluster with two selected namespaces, a CustomResourceDefinition
// with two versions, an APIService without a back end, and a user with few permissions.
const forResources = `
{apiVersion: v1, kind: Namespace, metadata: {name: alpha, labels: {team: a}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: beta, labels: {team: a}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: gamma}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wi]}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1alpha1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.away.example.org}
spec:
  {group: away.example.org, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, insecureSkipTLSVerify: true, service: {namespace: default, name: nobody}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: everywhere}
rules:
- {apiGroups: [example.com], resources: ["*"], verbs: [get, list, watch]}
- {apiGroups: [apiextensions.k8s.io], resources: ["*"], verbs: [get]}
- {apiGroups: [""], resources: [pods, namespaces], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: everywhere}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: everywhere}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: little}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: here, namespace: alpha}
rules: [{apiGroups: [""], resources: [services], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: here, namespace: alpha}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: here}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: little}]
`

// namesTaken is a CustomResourceDefinition whose kind is already taken. Create it after the definition
// in forResources is accepted.
const namesTaken = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: wedges.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: wedges, singular: wedge, kind: Widget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

func create(t *testing.T, cp *controlplane.ControlPlane, manifests string) {
	t.Helper()
	client, err := dynamic.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	for manifest := range strings.SplitSeq(manifests, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
			t.Fatal(err)
		}
		gv := o.GroupVersionKind().GroupVersion()
		plural := strings.ToLower(o.GetKind()) + "s"
		var of dynamic.ResourceInterface = client.Resource(schema.GroupVersionResource{Group: gv.Group, Version: gv.Version, Resource: plural})
		if o.GetNamespace() != "" {
			of = client.Resource(schema.GroupVersionResource{Group: gv.Group, Version: gv.Version, Resource: plural}).Namespace(o.GetNamespace())
		}
		if _, err := of.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// resourcesCommand runs 'forwarder resources'.
func resourcesCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), tailLimit)
	defer cancel()
	code = run(ctx, append([]string{"resources"}, args...), &out, &err)
	return code, out.String(), err.String()
}

// explainedOnce runs the command with -o json until want accepts the output. The API server serves a
// new resource, and applies a new permission, only after a moment.
func explainedOnce(t *testing.T, want func(explain.Explanation) error, args ...string) explain.Explanation {
	t.Helper()
	deadline, ticker := time.NewTimer(tailLimit), time.NewTicker(100*time.Millisecond)
	defer deadline.Stop()
	defer ticker.Stop()
	for {
		code, stdout, stderr := resourcesCommand(t, append(args, "-o", "json")...)
		var x explain.Explanation
		if err := json.Unmarshal([]byte(stdout), &x); err != nil || code != 0 || stderr != "" {
			t.Fatalf("exit code %d, %v; %s%s", code, err, stdout, stderr)
		}
		err := want(x)
		if err == nil {
			return x
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("%v\n%s", err, stdout)
		}
	}
}

func rows(x explain.Explanation) string {
	var all []string
	for _, r := range x.Resources {
		all = append(all, fmt.Sprintf("%s %s %s %s %s %s %s", r.Name, r.Version, r.Watched, r.Reason, r.Selector, r.Scope, strings.Join(r.Namespaces, ",")))
	}
	return strings.Join(all, "\n")
}

func TestResources(t *testing.T) {
	cp := controlplanetest.New(t, controlplane.Options{Users: map[string][]string{"little": nil}})
	create(t, cp, forResources)
	for name, value := range map[string]string{
		"KUBECONFIG":                   cp.KubeconfigFor("little"),
		"KUBERELAY_RESOURCES":          "services,po,Deployment.apps,rs,*.example.com,tokenreviews,gizmos,nodes,*.coordination.k8s.io",
		"KUBERELAY_EXCLUDE_RESOURCES":  "replicasets.apps,nonesuch",
		"KUBERELAY_NAMESPACE_SELECTOR": "team=a",
		"KUBERELAY_LABEL_SELECTOR":     "app=web",
	} {
		t.Setenv(name, value)
	}
	const want = `nodes v1 no forbidden nodes cluster 
pods v1 yes  po namespaces alpha,beta
services v1 partly forbidden services namespaces alpha
deployments.apps v1 no forbidden Deployment.apps namespaces 
replicasets.apps v1 no excluded rs  
tokenreviews.authentication.k8s.io v1 no not_watchable tokenreviews  
leases.coordination.k8s.io v1 no not_named *.coordination.k8s.io  
widgets.example.com v1 yes  *.example.com namespaces alpha,beta`
	x := explainedOnce(t, func(x explain.Explanation) error {
		if got := rows(x); got != want {
			return fmt.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if len(x.FailingGroups) != 1 || x.FailingGroups[0].Group != "away.example.org" || x.FailingGroups[0].Error == "" {
			return fmt.Errorf("failing are %+v", x.FailingGroups)
		}
		return nil
	})
	of := map[string]explain.Explained{}
	for _, r := range x.Resources {
		of[r.Name] = r
	}
	if got := of["widgets.example.com"]; !slices.Equal(got.Versions, []string{"v1", "v1alpha1"}) || !got.Namespaced || got.Kind != "Widget" {
		t.Errorf("widgets: got %+v", got)
	}
	for name, want := range map[string]string{
		"pods":             "[{alpha [get] } {beta [get] }]",
		"services":         "[{beta [list watch get] }]",
		"nodes":            "[{ [list watch get] }]",
		"replicasets.apps": "[]",
	} {
		if got := fmt.Sprint(of[name].Forbidden); got != want {
			t.Errorf("%s: forbidden are %s, want %s", name, got, want)
		}
	}
	if got := of["replicasets.apps"].ExcludedBy; got != "replicasets.apps" {
		t.Errorf("excluded by %q", got)
	}
	if !slices.Equal(x.Namespaces.Selected, []string{"alpha", "beta"}) || !slices.Equal(x.Unmatched, []string{"gizmos"}) || !slices.Equal(x.UnmatchedExclude, []string{"nonesuch"}) || len(x.Warnings) > 0 {
		t.Errorf("got namespaces %+v, unmatched %q and %q, warnings %q", x.Namespaces, x.Unmatched, x.UnmatchedExclude, x.Warnings)
	}

	code, table, stderr := resourcesCommand(t)
	t.Logf("as a table:\n%s", table)
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	for _, line := range []string{
		`pods +v1 +Pod +true +po +yes +2 namespaces +forbidden: get in the namespaces alpha, beta, so missed deletes cannot be confirmed`,
		`services +v1 +Service +true +services +partly +1 namespace +forbidden: list, watch, get in the namespace beta`,
		`replicasets.apps +v1 +ReplicaSet +true +rs +no +- +excluded by replicasets.apps`,
		`tokenreviews.authentication.k8s.io +v1 +TokenReview +false +tokenreviews +no +- +the API server does not support list and watch, only create`,
		`widgets.example.com +v1 +Widget +true +\*.example.com +yes +2 namespaces +-`,
		`namespaced resources: one watch for each namespace, because up to 10 are watched one by one`,
		`namespaces: 2 selected: alpha, beta`,
		`only objects whose labels match: app=web`,
		`selectors that match nothing yet: gizmos`,
		`exclusions that match nothing now: nonesuch`,
		`API group whose discovery fails, which might have more resources: away.example.org: .+`,
		`3 watched, 1 of them only partly; 5 not watched`,
	} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(table) {
			t.Errorf("there is no line %q", line)
		}
	}
	oneResource(t, cp)
	allResources(t)

	// Rejected credentials are a usage error, because a retry does not fix them.
	text, err := os.ReadFile(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	refused := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(refused, bytes.Replace(text, []byte("token: "), []byte("token: wrong"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", refused)
	if code, stdout, stderr := resourcesCommand(t, "pods"); code != exitUsage || stdout != "" || !strings.Contains(stderr, "does not accept the credentials") {
		t.Errorf("rejected credentials: exit code %d, %s%s", code, stdout, stderr)
	}
}

// oneResource verifies that the output for a single resource explains why the resource is not watched.
func oneResource(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	create(t, cp, namesTaken)
	explainedOnce(t, func(x explain.Explanation) error {
		if len(x.NotServed) != 1 || !strings.Contains(x.NotServed[0].Detail, "NamesAccepted is False") {
			return fmt.Errorf("not served: got %+v", x.NotServed)
		}
		return nil
	}, "wedges.example.com")
	for name, want := range map[string]string{
		"wi":                          `Version: +v1, served in v1, v1alpha1\nWatched: +yes\nSelector: +\*.example.com\n`,
		"Widget.v1alpha1.example.com": `Resource: +widgets.example.com\n`,
		"secrets":                     `Watched: +no\nWhy: +not selected\n`,
		"deploy":                      `Forbidden: +list, watch, get in the namespace alpha\n`,
		"widgets.v9.example.com":      `widgets.v9.example.com: it is not served in version v9, only in v1, v1alpha1\n`,
		"things.away.example.org":     `things.away.example.org: discovery of its group fails: .+\n`,
		"pods/log":                    `pods/log: a subresource is not watched by itself; ask for pods\n`,
		"gizmos":                      `gizmos: the cluster does not serve it, .*; the forwarder will watch it when the cluster serves it\n`,
		"replicasets.apps,services":   `Excluded by: +replicasets.apps\n(.|\n)*Resource: +services\n|Resource: +services\n(.|\n)*Excluded by: +replicasets.apps\n`,
	} {
		code, stdout, stderr := resourcesCommand(t, name)
		if code != 0 || stderr != "" || !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("%s: exit code %d, got\n%s%s\nwant %s", name, code, stdout, stderr, want)
		}
		t.Logf("%s:\n%s", name, stdout)
	}
	// A permitted list can still fail, which only a list request shows.
	t.Setenv("KUBERELAY_FIELD_SELECTOR", "spec.color=red")
	code, stdout, stderr := resourcesCommand(t, "widgets")
	if code != 0 || !regexp.MustCompile(`Watched: +no\nWhy: +a list fails\nList: +.*field label not supported`).MatchString(stdout) {
		t.Errorf("a field selector that the resource does not support: exit code %d, got\n%s%s", code, stdout, stderr)
	}
	t.Setenv("KUBERELAY_FIELD_SELECTOR", "")
}

// allResources verifies that --all works without KUBERELAY_RESOURCES.
func allResources(t *testing.T) {
	t.Helper()
	t.Setenv("KUBERELAY_RESOURCES", "")
	t.Setenv("KUBERELAY_EXCLUDE_RESOURCES", "")
	code, stdout, stderr := resourcesCommand(t, "--all")
	for _, line := range []string{`(?m)^leases.coordination.k8s.io +v1 +Lease +true +- +no +- +not selected$`, `(?m)^0 watched, 0 of them only partly; [1-9][0-9]+ not watched$`} {
		if code != 0 || !regexp.MustCompile(line).MatchString(stdout) {
			t.Errorf("exit code %d, there is no line %q in\n%s%s", code, line, stdout, stderr)
		}
	}
}

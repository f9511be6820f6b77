package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/selector"
)

// explainNamespaces lists the namespaces if the selection needs them, and checks that the named
// namespaces exist.
func (e *explainer) explainNamespaces(ctx context.Context, into *Explanation) ExplainedNamespaces {
	n := e.namespaces
	x := ExplainedNamespaces{All: n.SelectsAll(), NotFound: []string{}}
	if n.SelectsAll() {
		return x
	}
	existing, err := e.listNamespaces(ctx)
	if n.NeedsWatch() {
		if err != nil {
			_ = n.Fail(err)
			x.Error = err.Error()
			return x
		}
		for name, labels := range existing {
			n.Put(name, labels)
		}
		n.Synced()
		if err := e.access.Denied(ctx, event.Resource{Version: "v1", Resource: discovery.NamespaceResource.Resource}, ""); err != nil {
			into.Warnings = append(into.Warnings, "namespaces cannot be watched, so new namespaces and changed labels go unnoticed: "+err.Error())
		}
	}
	x.Selected, _ = n.Selected()
	x.Selected = orEmpty(x.Selected)
	for _, name := range n.Named() {
		if _, exists := existing[name]; err == nil && !exists && n.MaySelect(name) {
			x.NotFound = append(x.NotFound, name)
			if similar := selector.Similar(name, slices.Collect(maps.Keys(existing))); similar != "" {
				into.Suggestions[name] = similar
			}
		}
	}
	return x
}

// listNamespaces returns the namespaces and their labels.
func (e *explainer) listNamespaces(ctx context.Context) (map[string]map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := e.config.Dynamic.Resource(discovery.NamespaceResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	existing := map[string]map[string]string{}
	for _, o := range list.Items {
		existing[o.GetName()] = o.GetLabels()
	}
	return existing, nil
}

// scopeDetail returns the reason for the result of [discovery.Scopes]: one watch of all namespaces
// if wide, and a watch for each namespace otherwise.
func (e *explainer) scopeDetail(r event.Resource, wide bool) string {
	n := e.namespaces
	list, known := n.Selected()
	switch {
	case !r.Namespaced:
		return ""
	case n.SelectsAll():
		return "one watch, because all namespaces are selected"
	case wide && !known:
		return "one watch of all namespaces, because they cannot be listed"
	case wide && n.SelectsMost():
		return "one watch of all namespaces, because all but the excluded ones are selected"
	case wide:
		return fmt.Sprintf("one watch of all namespaces, because %d are selected and only up to %d are watched one by one", len(list), n.MaxSeparate())
	case !n.SelectsMost() && len(list) <= n.MaxSeparate():
		return fmt.Sprintf("one watch for each namespace, because up to %d are watched one by one", n.MaxSeparate())
	}
	return "one watch for each namespace, because access to all namespaces is denied"
}

// describeRefusals groups the namespaces by the verbs that are forbidden in them.
func describeRefusals(all []Refusal, namespaced bool) string {
	var order []string
	places := map[string][]string{}
	for _, r := range all {
		verbs := strings.Join(r.Verbs, ", ")
		if _, ok := places[verbs]; !ok {
			order = append(order, verbs)
		}
		places[verbs] = append(places[verbs], r.Namespace)
	}
	var parts []string
	for _, verbs := range order {
		where := "in all namespaces"
		switch names := places[verbs]; {
		case !namespaced:
			where = "in the cluster"
		case len(names) > 1:
			where = "in the namespaces " + strings.Join(names, ", ")
		case names[0] != "":
			where = "in the namespace " + names[0]
		}
		part := fmt.Sprintf("forbidden: %s %s", verbs, where)
		if verbs == "get" {
			part += ", so missed deletes cannot be confirmed"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// notServed returns why a name matches nothing in the cluster.
func (e *explainer) notServed(ctx context.Context, asked string) string {
	if whole, _, sub := strings.Cut(asked, "/"); sub {
		return "a subresource is not watched by itself; ask for " + whole
	}
	withVersion, gr := schema.ParseResourceArg(strings.ToLower(asked))
	if withVersion != nil && selector.IsVersion(withVersion.Version) {
		gr = withVersion.GroupResource()
		if r := e.catalog.Match(gr.String()); len(r) > 0 {
			return fmt.Sprintf("it is not served in version %s, only in %s",
				withVersion.Version, strings.Join(e.catalog.Versions(r[0].GroupResource()), ", "))
		}
	}
	why := "the cluster does not serve it"
	if err, ok := e.catalog.Failed[gr.Group]; ok && gr.Group != "" {
		why = "discovery of its group fails: " + err.Error()
	} else if gr.Group == "" && len(e.catalog.Failed) > 0 {
		why += ", unless in a group whose discovery fails"
	}
	if undefined := e.definition(ctx, gr); undefined != "" {
		why += "; " + undefined
	}
	if slices.ContainsFunc(e.resolution.Unmatched, func(s string) bool { return strings.EqualFold(s, asked) }) {
		why += "; the forwarder will watch it when the cluster serves it"
	}
	return why
}

// definition returns why a resource that has a CustomResourceDefinition is not served. It returns
// "" if no CustomResourceDefinition exists, or if access to it is forbidden.
func (e *explainer) definition(ctx context.Context, gr schema.GroupResource) string {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	o, err := e.config.Dynamic.Resource(discovery.DefinitionResource).Get(ctx, gr.String(), metav1.GetOptions{})
	if err != nil {
		return ""
	}
	why := "its CustomResourceDefinition exists"
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		c, _ := c.(map[string]any)
		if (c["type"] == "NamesAccepted" || c["type"] == "Established") && c["status"] != "True" {
			why += fmt.Sprintf("; %v is %v: %v", c["type"], c["status"], c["message"])
		}
	}
	return why
}

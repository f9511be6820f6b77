package informers

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// namespaces lists them where they have to be known, and tells of those that are named
// whether they exist.
func (e *explainer) namespaces(ctx context.Context, warnings *[]string) ExplainedNamespaces {
	n := e.set.namespaces
	x := ExplainedNamespaces{All: n.all(), NotFound: []string{}}
	if n.all() {
		return x
	}
	existing, err := e.listNamespaces(ctx)
	if n.follows() {
		if err != nil {
			n.fail(err)
			x.Error = err.Error()
			return x
		}
		for name, labels := range existing {
			n.put(name, labels)
		}
		close(n.synced)
		if err := e.set.denied(ctx, event.Resource{Version: "v1", Resource: namespaceResource.Resource}, ""); err != nil {
			*warnings = append(*warnings, "namespaces cannot be watched, so it is not noticed when they come or change their labels: "+err.Error())
		}
	}
	x.Selected, _ = n.list()
	x.Selected = orEmpty(x.Selected)
	for _, name := range slices.Sorted(slices.Values(n.include.UnsortedList())) {
		if _, exists := existing[name]; err == nil && !exists && n.configured(name) {
			x.NotFound = append(x.NotFound, name)
		}
	}
	return x
}

// listNamespaces gives the labels of each.
func (e *explainer) listNamespaces(ctx context.Context) (map[string]map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := e.set.config.Dynamic.Resource(namespaceResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	existing := map[string]map[string]string{}
	for _, o := range list.Items {
		existing[o.GetName()] = o.GetLabels()
	}
	return existing, nil
}

// scopeDetail says why [Set.scopes] has decided as it has: for one watch of all
// namespaces if wide is true, and else for one of each.
func (e *explainer) scopeDetail(r event.Resource, wide bool) string {
	n := e.set.namespaces
	list, known := n.list()
	switch {
	case !r.Namespaced:
		return ""
	case n.all():
		return "one watch, as all namespaces are selected"
	case wide && !known:
		return "one watch of all namespaces, as they cannot be listed"
	case wide && n.nearlyAll():
		return "one watch of all namespaces, as all but some are selected"
	case wide:
		return fmt.Sprintf("one watch of all namespaces, as %d are selected and only up to %d are watched one by one", len(list), e.set.few)
	case !n.nearlyAll() && len(list) <= e.set.few:
		return fmt.Sprintf("one watch for each namespace, as up to %d are watched one by one", e.set.few)
	}
	return "one watch for each namespace, as all together may not be watched"
}

// describeRefusals puts together the namespaces in which the same is forbidden.
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
			part += ", so that no delete that nobody saw can be confirmed"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// versionName is what is ordered as one: k8s.io/apimachinery/pkg/version.
var versionName = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// notServed says why a name means nothing in the cluster.
func (e *explainer) notServed(ctx context.Context, asked string) string {
	if whole, _, sub := strings.Cut(asked, "/"); sub {
		return "a subresource is not watched by itself; ask for " + whole
	}
	withVersion, gr := schema.ParseResourceArg(strings.ToLower(asked))
	if withVersion != nil && versionName.MatchString(withVersion.Version) {
		gr = withVersion.GroupResource()
		if r := match(newMapper(e.catalogue), e.catalogue, gr.String()); len(r) > 0 {
			return fmt.Sprintf("it is not served in version %s, only in %s",
				withVersion.Version, strings.Join(e.catalogue.versionsOf(r[0].GroupResource()), ", "))
		}
	}
	why := "the cluster does not serve it"
	if err, ok := e.catalogue.failed[gr.Group]; ok && gr.Group != "" {
		why = "the discovery of its group fails: " + err.Error()
	} else if gr.Group == "" && len(e.catalogue.failed) > 0 {
		why += ", unless in a group whose discovery fails"
	}
	if undefined := e.definition(ctx, gr); undefined != "" {
		why += "; " + undefined
	}
	if slices.ContainsFunc(e.resolution.Unmatched, func(s string) bool { return strings.EqualFold(s, asked) }) {
		why += "; the selector waits for it"
	}
	return why
}

// definition says what keeps a custom resource from being served that is defined, "" if
// it is not, or may not be read.
func (e *explainer) definition(ctx context.Context, gr schema.GroupResource) string {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	o, err := e.set.config.Dynamic.Resource(definitionResource).Get(ctx, gr.String(), metav1.GetOptions{})
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

// versionsOf gives the versions that serve a resource, the preferred one first.
func (c *catalogue) versionsOf(gr schema.GroupResource) []string {
	versions := []string{}
	for _, g := range c.groups {
		for _, v := range g.Group.Versions {
			if _, ok := c.resources[gr.WithVersion(v.Version)]; ok && g.Group.Name == gr.Group {
				versions = append(versions, v.Version)
			}
		}
	}
	return versions
}

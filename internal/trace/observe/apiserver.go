package observe

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/deadline"
	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/explain"
	"github.com/kuberelay/kuberelay/internal/kubeconfig"
	"github.com/kuberelay/kuberelay/internal/relay"
	"github.com/kuberelay/kuberelay/internal/shape"
	"github.com/kuberelay/kuberelay/internal/trace"
)

// traced is the state of an object on the API server.
type traced struct {
	cfg      config.Config
	timeout  time.Duration     // limit for all requests of one step
	client   dynamic.Interface // nil if the cluster is unreachable
	resource event.Resource    // the zero value if discovery failed
	key      event.Key
	uid      string // UID of the cluster, "" if unknown or if the configuration has a cluster name
	object   trace.APIServer
	content  *unstructured.Unstructured // nil if the object doesn't exist or could not be read
	answer   explain.Explanation
}

// observeAPIServer reads the object from the API server. It returns only errors in the command line. Other
// errors are in the document.
func observeAPIServer(ctx context.Context, o Object, find kubeconfig.Finder, timeout time.Duration) (traced, error) {
	cfg, gr := find.Settings, o.Selector.GroupResource()
	c := traced{cfg: cfg, timeout: timeout, key: event.Key{Group: gr.Group, Resource: gr.Resource, Namespace: o.Namespace, Name: o.Name}}
	fail := func(err error) (traced, error) {
		c.object = trace.APIServer{State: trace.Unknown, Error: deadline.Explain(ctx, err, c.timeout).Error()}
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	kube, err := find.Config(ctx)
	if err != nil {
		return fail(err)
	}
	if c.answer, err = relay.Explain(ctx, relay.Config{Settings: cfg, Kube: kube}, explain.Question{Only: []string{o.Resource}}); err != nil {
		return fail(err)
	}
	if len(c.answer.Resources) == 0 {
		return c, fmt.Errorf("%q: %s; 'forwarder resources --all' lists what the cluster serves", o.Resource, c.answer.NotServed[0].Detail)
	}
	x := c.answer.Resources[0]
	c.resource = x.Resource
	if !x.Namespaced {
		o.Namespace = ""
	}
	c.key = c.resource.Key(o.Namespace, o.Name)
	if c.client, err = dynamic.NewForConfig(kube); err != nil {
		return fail(err)
	}
	if cfg.Event.ClusterName == "" {
		c.uid, _ = relay.ClusterUID(ctx, c.client) // without the permission, the UID stays unknown
	}
	c.content, err = c.client.Resource(c.resource.GroupVersionResource()).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.content, c.object = nil, trace.APIServer{State: trace.Absent}
	case err != nil:
		c.content = nil
		return fail(err)
	default:
		c.object = trace.APIServer{State: trace.Exists, UID: string(c.content.GetUID()), Version: c.content.GetResourceVersion()}
	}
	return c, nil
}

// selected returns whether the settings select the object, and why. It uses the settings of the
// forwarder if the forwarder responded. Otherwise it uses the settings of this environment.
func (c *traced) selected(ctx context.Context, f trace.Forwarder) trace.Selection {
	s, labelSelector, fieldSelector := c.environment(), c.cfg.Watch.LabelSelector, c.cfg.Watch.FieldSelector
	if f.Selection != nil {
		s, labelSelector, fieldSelector = *f.Selection, f.LabelSelector, f.FieldSelector
	}
	if s.Selected != trace.IsSelected || c.content == nil {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	c.applyLabels(&s, labelSelector)
	c.applyFields(ctx, &s, fieldSelector)
	if s.From == trace.FromEnvironment {
		c.applyFilter(&s)
	}
	return s
}

// environment returns whether the settings of this environment select the resource and the namespace.
func (c *traced) environment() trace.Selection {
	s := trace.Selection{From: trace.FromEnvironment, Selected: trace.MaybeSelected}
	switch {
	case c.resource == (event.Resource{}):
		s.Detail = "neither the API server nor the forwarder responds"
		return s
	case len(c.cfg.Watch.Resources) == 0:
		s.Detail = "KUBERELAY_RESOURCES is not set here, and the forwarder does not respond"
		return s
	}
	x, spaces := c.answer.Resources[0], c.answer.Namespaces
	s.Selector = x.Selector
	isDenied := func(r explain.Refusal) bool {
		return (r.Namespace == "" || r.Namespace == c.key.Namespace) && (slices.Contains(r.Verbs, "list") || slices.Contains(r.Verbs, "watch"))
	}
	switch {
	case x.Reason == explain.NamespacesUnknown, x.Reason == explain.ListFails:
		s.Detail = x.Detail + ": " + spaces.Error + x.ListError
	case x.Reason == discovery.Excluded:
		s.Selected, s.Detail = trace.NotSelected, "KUBERELAY_EXCLUDE_RESOURCES includes "+x.ExcludedBy
	case x.Reason != "" && x.Reason != explain.NotAllowed && x.Reason != explain.NoNamespaces:
		s.Selected, s.Detail = trace.NotSelected, "KUBERELAY_RESOURCES: "+x.Detail
	case c.key.Namespace != "" && spaces.Selected != nil && !slices.Contains(spaces.Selected, c.key.Namespace):
		s.Selected, s.Detail = trace.NotSelected, relay.NamespaceDetail(c.cfg.Watch, c.key.Namespace)
	case slices.ContainsFunc(x.Forbidden, isDenied):
		s.Selected, s.Detail = trace.IsForbidden, x.Detail
	default:
		s.Selected = trace.IsSelected
	}
	return s
}

// applyLabels changes the selection if the label selector does not match the object.
func (c *traced) applyLabels(s *trace.Selection, selector string) {
	matches, err := labels.Parse(selector)
	if err == nil && !matches.Matches(labels.Set(c.content.GetLabels())) {
		s.Selected, s.Detail = trace.NotSelected, "KUBERELAY_LABEL_SELECTOR "+selector+" does not match"
	}
}

// applyFields changes the selection if the field selector does not match the object. The API server
// evaluates the selector.
func (c *traced) applyFields(ctx context.Context, s *trace.Selection, selector string) {
	if selector == "" || s.Selected != trace.IsSelected {
		return
	}
	list, err := c.client.Resource(c.resource.GroupVersionResource()).Namespace(c.key.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", c.key.Name).String() + "," + selector, Limit: 1,
	})
	switch {
	case err != nil:
		s.Selected, s.Detail = trace.MaybeSelected, "KUBERELAY_FIELD_SELECTOR "+selector+" cannot be evaluated: "+err.Error()
	case len(list.Items) == 0:
		s.Selected, s.Detail = trace.NotSelected, "KUBERELAY_FIELD_SELECTOR "+selector+" does not match"
	}
}

// applyFilter evaluates the KUBERELAY_FILTER of this environment and changes the selection.
func (c *traced) applyFilter(s *trace.Selection) {
	if c.cfg.Content.Filter == "" || s.Selected != trace.IsSelected {
		return
	}
	key, err := c.cfg.Event.RedactionKey()
	var o *event.Object
	var failed error
	if err == nil {
		var text []byte
		if text, err = c.content.MarshalJSON(); err == nil {
			o, failed, err = shape.Converted(c.cfg, key, c.resource, text)
		}
	}
	switch {
	case err != nil:
		s.Selected, s.Detail = trace.MaybeSelected, "KUBERELAY_FILTER cannot be evaluated: "+err.Error()
	case failed != nil:
		s.Filter = trace.FilterFailed
	case o.Unselected:
		s.Selected, s.Detail, s.Filter = trace.NotSelected, "KUBERELAY_FILTER is false", trace.FilterFalse
	default:
		s.Filter = trace.FilterTrue
	}
}

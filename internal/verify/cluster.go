package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/verify/normal"
	"github.com/kuberelay/kuberelay/internal/verify/replica"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

const (
	pageSize       = 500
	requestTimeout = time.Minute
	maxConcurrent  = 8   // concurrent requests
	maxSingleReads = 200 // up to this number, objects are read one by one; above, the resource is listed
	listTries      = 5   // attempts; a list of many pages can outlive the history that it needs
)

// cluster reads the API server. Every response is consistent: a request for the current state names
// no resourceVersion, so the API server doesn't serve it from a stale cache. A list of the past
// names a resourceVersion, and returns exactly that version.
type cluster struct {
	rest      rest.Interface
	discovery discovery.DiscoveryInterface
	form      normal.Form
	shape     func(event.Resource) decode.Shape // nil if everything is published

	coverage                     coverage
	labelSelector, fieldSelector string
}

func newCluster(config *rest.Config, o Options) (*cluster, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = "", ""
	if config.Timeout == 0 {
		config.Timeout = requestTimeout
	}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return &cluster{
		rest: client, discovery: discovery.NewDiscoveryClient(client), form: normal.Form{Key: o.RedactionKey, Contents: o.Shape != nil}, shape: o.Shape,
		coverage:      coverage{include: o.Namespaces, exclude: o.ExcludeNamespaces, selector: o.NamespaceSelector, refused: map[namespacedResource]error{}},
		labelSelector: o.LabelSelector, fieldSelector: o.FieldSelector,
	}, nil
}

// name returns the name of the cluster if none is configured: the UID of kube-system.
func (c *cluster) name(ctx context.Context) (string, error) {
	var ns metav1.PartialObjectMetadata
	body, err := c.get(ctx, "/api/v1/namespaces/"+metav1.NamespaceSystem, nil)
	if err == nil {
		err = json.Unmarshal(body, &ns)
	}
	if err != nil {
		return "", fmt.Errorf("read the cluster's name: %w", err)
	}
	return string(ns.UID), nil
}

// ready returns an error while the API server reports that it is not ready, because discovery might
// then lack resources.
func (c *cluster) ready(ctx context.Context) error {
	_, err := c.get(ctx, "/readyz", nil)
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("the API server is not ready: %w", err)
	}
	return nil
}

func (c *cluster) get(ctx context.Context, path string, query map[string]string) ([]byte, error) {
	r := c.rest.Get().AbsPath(path)
	for name, value := range query {
		r.Param(name, value)
	}
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// selects reports whether label or field selectors apply.
func (c *cluster) selects() bool { return c.labelSelector != "" || c.fieldSelector != "" }

// scope limits one list.
type scope struct {
	namespace     string // "" for all
	name          string // "" for all
	labels, field string
	at            string // "" for now
	first         bool   // only the first object
}

// view says how to list a resource.
type view struct {
	selected bool   // apply the label and field selectors
	at       string // exactly this resourceVersion; "" for now
}

// listAll lists a resource and returns the latest resourceVersion of its lists. It calls begin
// before each attempt. If a list of many pages outlives the history that the API server needs for
// it, listAll starts over.
func (c *cluster) listAll(ctx context.Context, r resource, as view, begin func(), each func(item) error) (string, error) {
	for try := 1; ; try++ {
		begin()
		version, err := c.listOnce(ctx, r, as, each)
		if err == nil || try == listTries || as.at != "" || !isExpired(err) {
			return version, err
		}
	}
}

// isExpired reports whether the API server no longer has the version of a list.
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

func (c *cluster) listOnce(ctx context.Context, r resource, as view, each func(item) error) (latest string, err error) {
	covered := func(i item) error {
		if !c.coverage.has(i.key.Namespace) {
			return nil
		}
		return each(i)
	}
	namespaces := c.lists(r)
	for n := 0; n < len(namespaces); n++ {
		version, err := c.list(ctx, r, c.scope(namespaces[n], "", as), covered)
		if namespaces[n] == "" && err != nil {
			if one, ok := c.whereAllowed(ctx, r, err); ok {
				namespaces, n = one, -1
				continue
			}
		}
		if apierrors.IsForbidden(err) && namespaces[n] != "" {
			c.coverage.refused[namespacedResource{r.GroupResource(), namespaces[n]}] = err
			continue
		}
		if err != nil {
			return "", err
		}
		if latest == "" || replica.Newer(version, latest) {
			latest = version
		}
	}
	return latest, nil
}

func (c *cluster) scope(namespace, name string, as view) scope {
	s := scope{namespace: namespace, name: name, at: as.at}
	if as.selected {
		s.labels, s.field = c.labelSelector, c.fieldSelector
	}
	return s
}

// errInexact means that the API server cannot list a resource at a given version. An aggregated API
// server might not support such lists.
var errInexact = errors.New("the list has a different resourceVersion than requested")

// list calls each for every object in the scope, as of the resourceVersion that it returns.
func (c *cluster) list(ctx context.Context, r resource, s scope, each func(item) error) (string, error) {
	path := wire.Path(wire.Object{Group: r.Group, Resource: r.Resource, Namespace: s.namespace}, r.Version)
	query := map[string]string{"limit": strconv.Itoa(pageSize)}
	if s.labels != "" {
		query["labelSelector"] = s.labels
	}
	field := s.field
	if s.name != "" {
		field = fields.OneTermEqualSelector("metadata.name", s.name).String()
		if s.field != "" {
			field += "," + s.field
		}
	}
	if field != "" {
		query["fieldSelector"] = field
	}
	if s.at != "" {
		query["resourceVersion"] = s.at
		query["resourceVersionMatch"] = string(metav1.ResourceVersionMatchExact)
	}
	if s.first {
		query["limit"] = "1"
	}
	for {
		body, err := c.get(ctx, path, query)
		if err != nil {
			return "", err
		}
		version, next, err := readPage(r, body, each)
		switch {
		case err != nil:
			return "", err
		case s.at != "" && version != s.at:
			return "", errInexact
		case next == "", s.first:
			return version, nil
		}
		delete(query, "resourceVersion") // the continue token includes it
		delete(query, "resourceVersionMatch")
		query["continue"] = next
	}
}

// readPage calls each for every item of a page, and returns the resourceVersion and the continue
// token of the list. It parses each item by itself, because an item can be nested as deeply as the
// parser allows, and the list around it adds levels.
func readPage(r resource, body []byte, each func(item) error) (version, next string, err error) {
	var metadata struct{ ResourceVersion, Continue string }
	d := json.NewDecoder(bytes.NewReader(body))
	err = readMembers(d, json.Delim('{'), func() error {
		switch name, err := d.Token(); {
		case err != nil:
			return err
		case name == "metadata":
			return d.Decode(&metadata)
		case name == "items":
			return readMembers(d, json.Delim('['), func() error {
				i, err := readItem(r, d)
				if err != nil {
					return err
				}
				return each(i)
			})
		}
		return d.Decode(&json.RawMessage{})
	})
	if err != nil {
		return "", "", fmt.Errorf("read a list of %s: %w", r.GroupResource(), err)
	}
	return metadata.ResourceVersion, metadata.Continue, nil
}

// readMembers calls each for every member of an object or every element of an array. each must read
// the member. A null has no members.
func readMembers(d *json.Decoder, open json.Delim, each func() error) error {
	switch t, err := d.Token(); {
	case err != nil:
		return err
	case t == nil:
		return nil
	case t != open:
		return errors.New("it is not a list")
	}
	for d.More() {
		if err := each(); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// isUnserved reports whether the API server does not serve the path of a list.
func isUnserved(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusNotFound
}

// whatFailed describes a failed list for people.
func whatFailed(gr schema.GroupResource, err error) string {
	return fmt.Sprintf("list %s: %v", gr, err)
}

package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/clientgo/discovery"
	"github.com/kuberelay/kuberelay/internal/clientgo/scheme"
	"github.com/kuberelay/kuberelay/internal/event"
)

const (
	pageSize       = 500
	requestTimeout = time.Minute
	lookers        = 8   // objects asked for at once
	lookEach       = 200 // objects of a resource asked for one by one; above, the resource is listed
	listTries      = 5   // a list of many pages may outlive the history that it needs
)

// cluster reads the API server. Every answer is consistent: no request names a
// resourceVersion, so none is answered from a cache that is behind.
type cluster struct {
	rest      rest.Interface
	discovery discovery.DiscoveryInterface
	form      form
	shape     func(event.Resource) event.Shape // nil where everything is sent
	converter *event.Converter                 // of Secrets, for the shape

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
		rest: client, discovery: discovery.NewDiscoveryClient(client), form: form{key: o.RedactionKey, contents: o.Shape != nil}, shape: o.Shape, converter: event.NewConverter(o.RedactionKey),
		coverage:      coverage{include: o.Namespaces, exclude: o.ExcludeNamespaces, selector: o.NamespaceSelector, refused: map[corner]error{}},
		labelSelector: o.LabelSelector, fieldSelector: o.FieldSelector,
	}, nil
}

// name is the cluster's, where none is configured.
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

// ready fails while the API server says that it is not: it may not know yet what
// it serves.
func (c *cluster) ready(ctx context.Context) error {
	_, err := c.get(ctx, "/readyz", nil)
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("the API server is not ready: %w", err)
	}
	return nil
}

func (c *cluster) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	r := c.rest.Get().AbsPath(path)
	for name, values := range query {
		for _, v := range values {
			r.Param(name, v)
		}
	}
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// sighting is what the cluster showed of one key.
type sighting struct {
	present bool
	left    bool // it is there, and its content is not selected
	uid     string
	version string // of the object, or of the list that did not have it; "" if its type is not served
	api     string // version of the API in which it was read
	whole   digest
	partial digest // of the metadata alone

	// Of an object of which a part is sent there are these too, resourceVersion and
	// generation left out: an event may show it in an earlier version.
	projected            bool
	content, contentPart digest
	tree                 tree // in the form of the bus; only where asked for
}

// item is one object of a list, as the API server returns it.
type item struct {
	key     event.Key
	uid     string
	version string
	tree    tree
}

func readItem(r resource, raw []byte) (item, error) {
	t, err := decode(raw)
	if err != nil {
		return item{}, err
	}
	metadata, _ := t["metadata"].(tree)
	get := func(field string) string {
		s, _ := metadata[field].(string)
		return s
	}
	i := item{uid: get("uid"), version: get("resourceVersion"), tree: t}
	i.key = event.Key{Group: r.Group, Resource: r.Resource, Namespace: get("namespace"), Name: get("name")}
	return i, nil
}

// see makes a sighting of an item, whose tree it changes. What is not selected by its
// content is absent.
func (c *cluster) see(r resource, i item) sighting {
	if !c.selectsContent(r, i.tree) {
		return sighting{left: true}
	}
	c.form.ofCluster(r, i.tree)
	s := sighting{present: true, uid: i.uid, version: i.version, api: r.GroupVersion().String(), tree: i.tree}
	if shape := c.shapeOf(r); shape.Project != nil {
		shape.Project(i.tree)
		s.projected, s.content, s.contentPart = true, contentOf(i.tree), contentOf(metadataOnly(i.tree))
	}
	s.whole, s.partial = digestOf(i.tree), digestOf(metadataOnly(i.tree))
	return s
}

// selectsContent strips an object and tells whether its content is selected.
func (c *cluster) selectsContent(r resource, t tree) bool {
	c.form.strip(r, t)
	shape := c.shapeOf(r)
	if shape.None || shape.Select == nil {
		return !shape.None
	}
	if isSecret(r.GroupResource().String()) { // a filter sees hashes, in the places and the form that events have them
		var err error
		if t, err = c.redacted(t); err != nil {
			return true // as where the filter fails
		}
	}
	return shape.Select(t)
}

// redacted is a copy of a Secret in which values are hashed.
func (c *cluster) redacted(t tree) (tree, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	hashed, err := decode(text)
	if err == nil {
		c.converter.Redact(hashed)
	}
	return hashed, err
}

func (c *cluster) shapeOf(r resource) event.Shape {
	if c.shape == nil {
		return event.Shape{}
	}
	return c.shape(event.Resource{Group: r.Group, Version: r.Version, Resource: r.Resource, Kind: r.Kind, Namespaced: r.Namespaced})
}

// selects tells whether labels or fields leave out a part of a resource.
func (c *cluster) selects() bool { return c.labelSelector != "" || c.fieldSelector != "" }

// scope is what one list covers.
type scope struct {
	namespace     string // "" for all
	name          string // "" for all
	labels, field string
}

// listAll lists everything of a resource, or what the selectors select of it, and
// returns the latest resourceVersion of its lists. A list of many pages may outlive
// the history that the API server needs for it; then begin is called again and all
// starts anew.
func (c *cluster) listAll(ctx context.Context, r resource, selected bool, begin func(), each func(item) error) (string, error) {
	for try := 1; ; try++ {
		begin()
		version, err := c.listOnce(ctx, r, selected, each)
		if err == nil || try == listTries || !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return version, err
		}
	}
}

func (c *cluster) listOnce(ctx context.Context, r resource, selected bool, each func(item) error) (latest string, err error) {
	covered := func(i item) error {
		if !c.coverage.has(i.key.Namespace) {
			return nil
		}
		return each(i)
	}
	namespaces := c.lists(r)
	for n := 0; n < len(namespaces); n++ {
		version, err := c.list(ctx, r, c.scope(namespaces[n], "", selected), covered)
		if namespaces[n] == "" && err != nil {
			if one, ok := c.whereAllowed(ctx, err); ok {
				namespaces, n = one, -1
				continue
			}
		}
		if apierrors.IsForbidden(err) && namespaces[n] != "" {
			c.coverage.refused[corner{r.GroupResource(), namespaces[n]}] = err
			continue
		}
		if err != nil {
			return "", err
		}
		if latest == "" || newer(version, latest) {
			latest = version
		}
	}
	return latest, nil
}

func (c *cluster) scope(namespace, name string, selected bool) scope {
	s := scope{namespace: namespace, name: name}
	if selected {
		s.labels, s.field = c.labelSelector, c.fieldSelector
	}
	return s
}

// list calls each for every object in the scope, as of the resourceVersion that it
// returns.
func (c *cluster) list(ctx context.Context, r resource, s scope, each func(item) error) (string, error) {
	path := event.Resource{Group: r.Group, Version: r.Version, Resource: r.Resource}.
		Path(event.Key{Group: r.Group, Resource: r.Resource, Namespace: s.namespace})
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	if s.labels != "" {
		query.Set("labelSelector", s.labels)
	}
	field := s.field
	if s.name != "" {
		field = fields.OneTermEqualSelector("metadata.name", s.name).String()
		if s.field != "" {
			field += "," + s.field
		}
	}
	if field != "" {
		query.Set("fieldSelector", field)
	}
	for {
		body, err := c.get(ctx, path, query)
		if err != nil {
			return "", err
		}
		version, next, err := readPage(r, body, each)
		if err != nil || next == "" {
			return version, err
		}
		query.Set("continue", next)
	}
}

func readPage(r resource, body []byte, each func(item) error) (version, next string, err error) {
	var page struct {
		Metadata struct{ ResourceVersion, Continue string } `json:"metadata"`
		Items    []json.RawMessage                          `json:"items"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return "", "", fmt.Errorf("read a list of %s: %w", r.GroupResource(), err)
	}
	for _, raw := range page.Items {
		i, err := readItem(r, raw)
		if err == nil {
			err = each(i)
		}
		if err != nil {
			return "", "", fmt.Errorf("read a list of %s: %w", r.GroupResource(), err)
		}
	}
	return page.Metadata.ResourceVersion, page.Metadata.Continue, nil
}

// look asks the cluster for some objects of one resource, with or without the
// selectors. Every key is in the result.
func (c *cluster) look(ctx context.Context, r resource, keys []event.Key, selected bool) (map[event.Key]sighting, error) {
	if len(keys) > lookEach {
		return c.lookAll(ctx, r, keys, selected)
	}
	seen := make([]sighting, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(lookers)
	for n, k := range keys {
		group.Go(func() (err error) {
			seen[n], err = c.lookOne(ctx, r, k, selected)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	found := map[event.Key]sighting{}
	for n, k := range keys {
		seen[n].tree = nil
		found[k] = seen[n]
	}
	return found, nil
}

func (c *cluster) lookAll(ctx context.Context, r resource, keys []event.Key, selected bool) (map[event.Key]sighting, error) {
	found := map[event.Key]sighting{}
	begin := func() {
		for _, k := range keys {
			found[k] = sighting{}
		}
	}
	version, err := c.listAll(ctx, r, selected, begin, func(i item) error {
		if _, wanted := found[i.key]; wanted {
			s := c.see(r, i)
			s.tree = nil
			found[i.key] = s
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for k, s := range found {
		if !s.present {
			found[k] = sighting{version: version}
		}
	}
	return found, nil
}

// lookOne lists the one object: unlike a get, that says of which resourceVersion
// the answer is if there is none, and heeds the selectors.
func (c *cluster) lookOne(ctx context.Context, r resource, k event.Key, selected bool) (sighting, error) {
	var seen sighting
	version, err := c.list(ctx, r, c.scope(k.Namespace, k.Name, selected), func(i item) error {
		if i.key == k {
			seen = c.see(r, i)
		}
		return nil
	})
	if err != nil {
		return sighting{}, err
	}
	if !seen.present {
		seen.version = version
	}
	return seen, nil
}

// isUnserved tells the answer of an API server that does not serve the path of a
// list at all.
func isUnserved(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusNotFound
}

// whatFailed is for a person: what the API server says of a list that it refused.
func whatFailed(gr schema.GroupResource, err error) string {
	return fmt.Sprintf("list %s: %v", gr, err)
}

package discovery

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"k8s.io/client-go/discovery"
)

// etags holds the ETags of the two documents of aggregated discovery. An ETag is a hash of the whole
// document (kube-apiserver, endpoints/discovery/aggregated/etag.go), including stale groups. So two
// responses with the same ETags report the same failed groups.
type etags struct{ api, apis string }

// complete reports whether both documents have an ETag.
func (e etags) complete() bool { return e.api != "" && e.apis != "" }

var aggregatedList = schema.GroupVersionKind{Group: apidiscovery.GroupName, Version: "v2", Kind: "APIGroupDiscoveryList"}

// Discover returns the catalog of the resources that the API server serves. known is an earlier
// catalog, or nil. If nothing has changed since known, unchanged is true and c is nil: the API
// server compares ETags and sends no document. [Catalog.Failed] contains the groups that failed. An
// error means that discovery failed as a whole.
//
// Discover falls back to client-go if the API server does not support aggregated discovery (before
// Kubernetes 1.30) or sends any other unexpected response. client-go respects Retry-After and
// classifies errors.
func Discover(ctx context.Context, client discovery.DiscoveryInterface, known *Catalog) (c *Catalog, unchanged bool, err error) {
	if d, ok := client.RESTClient().(*rest.RESTClient); ok && d != nil {
		var before etags
		if known != nil {
			before = known.etags
		}
		c, unchanged = documents{d}.read(ctx, before)
	}
	if c != nil || unchanged {
		return c, unchanged, nil
	}
	c, err = discover(ctx, client)
	return c, false, err
}

// IsConditional reports whether [Discover] can use ETags to check whether this catalog is current.
func (c *Catalog) IsConditional() bool { return c.etags.complete() }

// Ready returns nil if the API server reports that it is ready.
func Ready(ctx context.Context, client discovery.DiscoveryInterface) error {
	r := client.RESTClient()
	if r == nil {
		return nil // a client without a server behind it
	}
	return r.Get().AbsPath("/readyz").Do(ctx).Error()
}

// documents reads the two documents of aggregated discovery. It does not use client-go's discovery
// client, because that client does not expose the headers of a response.
type documents struct{ client *rest.RESTClient }

// read returns a catalog, or unchanged if both ETags equal those of known. It returns nil and false
// if a request fails or a response does not have the expected form.
func (d documents) read(ctx context.Context, known etags) (c *Catalog, unchanged bool) {
	if !known.complete() {
		known = etags{}
	}
	api, ok := d.get(ctx, "/api", known.api)
	if !ok {
		return nil, false
	}
	apis, ok := d.get(ctx, "/apis", known.apis)
	if !ok {
		return nil, false
	}
	now := etags{api.etag, apis.etag}
	if known.complete() && now == known {
		return nil, true
	}
	// At least one of the documents has changed, and the catalog needs both.
	if api.list == nil {
		if api, ok = d.get(ctx, "/api", ""); !ok {
			return nil, false
		}
	}
	if apis.list == nil {
		if apis, ok = d.get(ctx, "/apis", ""); !ok {
			return nil, false
		}
	}
	c = newCatalog(d.split(api.list, apis.list))
	c.etags = etags{api.etag, apis.etag}
	return c, false
}

// document is one of the two documents. list is nil if the document has not changed.
type document struct {
	etag string
	list *apidiscovery.APIGroupDiscoveryList
}

func (d documents) get(ctx context.Context, path, etag string) (document, bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.client.Get().AbsPath(path).URL().String(), nil)
	if err != nil {
		return document{}, false
	}
	request.Header.Set("Accept", discovery.AcceptV2)
	if etag != "" {
		request.Header.Set("If-None-Match", etag)
	}
	response, err := d.client.Client.Do(request)
	if err != nil {
		return document{}, false
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	switch isList, _ := discovery.ContentTypeIsGVK(response.Header.Get("Content-Type"), aggregatedList); {
	case err != nil:
	case response.StatusCode == http.StatusNotModified && etag != "":
		return document{etag: etag}, true
	case response.StatusCode == http.StatusOK && isList:
		list := &apidiscovery.APIGroupDiscoveryList{}
		if err := json.Unmarshal(body, list); err == nil {
			return document{response.Header.Get("Etag"), list}, true
		}
	}
	return document{}, false
}

func (documents) split(lists ...*apidiscovery.APIGroupDiscoveryList) (groups []*metav1.APIGroup, resources []*metav1.APIResourceList, failed map[schema.GroupVersion]error) {
	failed = map[schema.GroupVersion]error{}
	for _, list := range lists {
		g, r, f := discovery.SplitGroupsAndResources(*list)
		for n := range g.Groups {
			groups = append(groups, &g.Groups[n])
		}
		resources = slices.AppendSeq(resources, maps.Values(r))
		maps.Copy(failed, f)
	}
	return groups, resources, failed
}

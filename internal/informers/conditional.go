package informers

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/clientgo/discovery"
)

// etags are those of the two documents of aggregated discovery. They are hashes of
// the whole document (kube-apiserver, endpoints/discovery/aggregated/etag.go), and so
// also of which groups are marked stale: two answers with the same ETags say the same
// of groups that fail.
type etags struct{ api, apis string }

// whole tells whether they stand for a whole answer.
func (e etags) whole() bool { return e.api != "" && e.apis != "" }

var aggregatedList = schema.GroupVersionKind{Group: apidiscovery.GroupName, Version: "v2", Kind: "APIGroupDiscoveryList"}

// discoverChange asks the API server what it serves, unless that is what known stands
// for: then unchanged is true, and neither did the API server make up an answer nor
// has one been read. Where it does not speak aggregated discovery (before Kubernetes
// 1.30), or answers anything but that, it is asked as client-go does, which heeds
// Retry-After and makes an error of what is one.
func discoverChange(ctx context.Context, client discovery.DiscoveryInterface, known etags) (c *catalogue, unchanged bool, err error) {
	if d, ok := client.RESTClient().(*rest.RESTClient); ok && d != nil {
		c, unchanged = documents{d}.read(ctx, known)
	}
	if c != nil || unchanged {
		return c, unchanged, nil
	}
	c, err = discover(ctx, client)
	return c, false, err
}

// documents reads the two of aggregated discovery. It goes around client-go's client
// for one thing only: that keeps an answer's headers to itself.
type documents struct{ client *rest.RESTClient }

// read gives nothing where there is no answer of the expected form.
func (d documents) read(ctx context.Context, known etags) (c *catalogue, unchanged bool) {
	if !known.whole() {
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
	if known.whole() && now == known {
		return nil, true
	}
	// One of the two has changed; the catalogue is made of both.
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
	c = newCatalogue(d.split(api.list, apis.list))
	c.etags = etags{api.etag, apis.etag}
	return c, false
}

// document is an answer, without a list where it has not changed.
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
		for _, l := range r {
			resources = append(resources, l)
		}
		for gv, err := range f {
			failed[gv] = err
		}
	}
	return groups, resources, failed
}

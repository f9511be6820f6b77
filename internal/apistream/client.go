package apistream

import (
	"context"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// Client asks one API server. It may be used by several goroutines at once.
type Client struct{ rest rest.Interface }

// Resource is what is listed or watched.
type Resource struct {
	schema.GroupVersionResource
	Namespace string // "" for all, or for a cluster-scoped resource
}

// Decode takes an object from the value that comes next, and consumes it. An error ends
// the list or the watch.
type Decode func(*jsonscan.Scanner) (runtime.Object, error)

// New makes a Client with a rate limiter of its own, as the configuration says.
func New(config *rest.Config) (*Client, error) {
	c := dynamic.ConfigFor(config) // errors are answered in what it accepts
	c.AcceptContentTypes, c.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.GroupVersion = &schema.GroupVersion{}
	c.APIPath = "/" // requests have whole paths
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return &Client{client}, nil
}

// get gives the body of an answer. An answer that is an error is one, of
// [k8s.io/apimachinery/pkg/api/errors].
func (c *Client) get(ctx context.Context, r Resource, o metav1.ListOptions) (io.ReadCloser, error) {
	path := []string{"/apis", r.Group, r.Version}
	if r.Group == "" {
		path = []string{"/api", r.Version}
	}
	if r.Namespace != "" {
		path = append(path, "namespaces", r.Namespace)
	}
	return c.rest.Get().AbsPath(append(path, r.GroupVersionResource.Resource)...).
		SpecificallyVersionedParams(&o, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		Stream(ctx)
}

// An API server that ends behind a load balancer closes connections instead of refusing
// them. client-go tries such a watch again, and so do we: an error would have the
// reflector list everything.
const (
	opensTried = 10
	openAgain  = time.Second
)

func (c *Client) open(ctx context.Context, r Resource, o metav1.ListOptions) (body io.ReadCloser, err error) {
	for range opensTried {
		if body, err = c.get(ctx, r, o); err == nil || !utilnet.IsProbableEOF(err) && !utilnet.IsTimeout(err) {
			return body, err
		}
		timer := time.NewTimer(openAgain)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		case <-timer.C:
		}
	}
	return nil, err
}

// List gives the objects of a list, or of one page of it.
func (c *Client) List(ctx context.Context, r Resource, o metav1.ListOptions, decode Decode) (*List, error) {
	body, err := c.get(ctx, r, o)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	list, err := readList(body, decode)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", r.GroupResource(), err)
	}
	return list, nil
}

// Watch opens a watch. Opened is called when the API server has answered, before the first
// event; show with each event before it is handed on, errors included, by one goroutine.
func (c *Client) Watch(ctx context.Context, r Resource, o metav1.ListOptions, decode Decode, opened func(), show func(watch.Event)) (watch.Interface, error) {
	o.Watch = true
	ctx, cancel := context.WithCancel(ctx)
	body, err := c.open(ctx, r, o)
	if err != nil {
		cancel()
		return nil, err
	}
	opened()
	w := &watcher{body: body, cancel: cancel, decode: decode, show: show, result: make(chan watch.Event, ahead), stopped: make(chan struct{})}
	go w.run()
	return w, nil
}

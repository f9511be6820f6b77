package apistream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// Client lists and watches the resources of one API server. Several goroutines can use it
// at once.
type Client struct{ rest rest.Interface }

// Resource is a resource to list or watch.
type Resource struct {
	schema.GroupVersionResource
	Namespace string // "" for all namespaces, or for a cluster-scoped resource
}

// Decode consumes the next value and returns it as an object. An error ends the list or the
// watch.
type Decode func(*jsonscan.Scanner) (runtime.Object, error)

// New returns a Client with its own rate limiter, as configured.
func New(config *rest.Config) (*Client, error) {
	c := dynamic.ConfigFor(config) // accepts the formats in which the API server reports errors
	c.AcceptContentTypes, c.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.GroupVersion = &schema.GroupVersion{}
	c.APIPath = "/" // each request sets its full path
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("create client of the API server: %w", err)
	}
	return &Client{client}, nil
}

// get returns the body of a response. For an error response, it returns an error of
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

// maxOpenAttempts limits the attempts to open a watch after a closed connection or a timeout.
// openRetryDelay is the pause between the attempts. An API server that shuts down behind a load
// balancer closes connections instead of refusing them. client-go retries such a watch too. An
// error would make the reflector list everything again.
const (
	maxOpenAttempts = 10
	openRetryDelay  = time.Second
)

func (c *Client) open(ctx context.Context, r Resource, o metav1.ListOptions) (body io.ReadCloser, err error) {
	for range maxOpenAttempts {
		if body, err = c.get(ctx, r, o); err == nil || !utilnet.IsProbableEOF(err) && !utilnet.IsTimeout(err) {
			return body, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(openRetryDelay):
		}
	}
	return nil, err
}

// List returns a list, or one page of it.
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

// Watch opens a watch. It calls opened when the API server has responded, before the first event. asked
// is the time of the request that succeeded, after retries. A single goroutine calls show with each
// event, including errors, before it delivers the event.
func (c *Client) Watch(ctx context.Context, r Resource, o metav1.ListOptions, decode Decode, opened func(asked time.Time), show func(watch.Event)) (watch.Interface, error) {
	o.Watch = true
	var asked atomic.Pointer[time.Time]
	ask := func() { asked.Store(new(time.Now())) }
	ask() // in case the transport does not call GotConn
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { ask() }})
	ctx, cancel := context.WithCancel(ctx)
	body, err := c.open(ctx, r, o)
	if err != nil {
		cancel()
		return nil, interruptible(o, err)
	}
	opened(*asked.Load())
	w := &watcher{body: body, cancel: cancel, decode: decode, show: show, result: make(chan watch.Event, resultBuffer), stopped: make(chan struct{})}
	go w.run()
	return w, nil
}

// interruptible replaces a connection-refused error of a stream that begins with a list. After such
// an error, a reflector waits for up to a minute and ignores its context (client-go 0.37,
// Reflector.watchList). After any other error, the reflector tries a list, and any later wait ends
// with the context.
func interruptible(o metav1.ListOptions, err error) error {
	if o.SendInitialEvents != nil && utilnet.IsConnectionRefused(err) {
		return errors.New(err.Error())
	}
	return err
}

// IsExpected reports whether err ends a watch normally: the watch was stopped, or the API server no
// longer has the history to continue it (410). After a 410, the reflector lists again.
func IsExpected(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.Canceled)
}

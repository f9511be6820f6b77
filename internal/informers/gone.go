package informers

import (
	"context"
	"errors"
	"fmt"
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// reconcileGone deals with a resource that nothing watches: if the cluster does
// not serve it any more, its objects are gone; if it is only not selected any
// more, they are left alone.
func (s *Set) reconcileGone(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) (Comparison, error) {
	var c Comparison
	live := map[event.Key]event.Acked{}
	for k, a := range acked {
		if a.Live() {
			live[k] = a
		}
	}
	if len(live) == 0 {
		s.metrics.forget(gr.String())
		if len(s.follow.sources(gr)) == 0 {
			return c, nil
		}
	}
	gone, err := s.resourceGone(ctx, gr)
	if err != nil {
		return c, fmt.Errorf("tell whether the cluster still serves %s: %w", gr, err)
	}
	if !gone {
		s.leaveResource(gr, live, &c)
		return c, nil
	}
	if s.watchedFor(gr) == nil {
		s.referNothing(gr)
	}
	for k, a := range live {
		if s.watchedFor(gr) != nil {
			c.Waiting++ // it is back, and its informers will say
			continue
		}
		c.Deleted++
		s.inferDelete(k, a)
	}
	return c, nil
}

// leaveResource deals with the objects of a resource that the cluster serves and that is
// not selected. Where the discovery of any group fails it cannot be said that it is not.
func (s *Set) leaveResource(gr schema.GroupResource, live map[event.Key]event.Acked, c *Comparison) {
	a := s.lastAnswer()
	switch {
	case a.catalogue.gone(gr):
		c.Waiting = len(live) // it has come back since what is selected was found out
		return
	case s.follow.on() && !s.follow.complete.Load():
		c.Waiting = len(live) // something that has not been listed yet may refer to it
		return
	case !s.config.TellDeselected || len(a.catalogue.failed) > 0:
		c.OutOfScope = len(live)
		return
	}
	for k, a := range live {
		if s.watchedFor(gr) != nil {
			c.Waiting++ // it is selected again
			continue
		}
		s.leave(k, a, c)
	}
}

// resourceGone asks anew if the last discovery did not show the resource, and
// only an API server that says it is ready: one that has just started does not
// know of its custom resources yet. An error means that it cannot be told.
func (s *Set) resourceGone(ctx context.Context, gr schema.GroupResource) (bool, error) {
	if !s.lastAnswer().catalogue.gone(gr) {
		return false, nil
	}
	if err := s.serverReady(ctx); err != nil {
		return false, fmt.Errorf("the API server is not ready: %w", err)
	}
	c, err := discover(ctx, s.config.Discovery)
	if err != nil {
		return false, err
	}
	if !c.gone(gr) {
		return false, nil
	}
	if err := s.undefined(ctx, gr, c); err != nil {
		return false, err
	}
	return true, nil
}

// undefined is nil if there is nothing in the cluster that would have it serve the
// resource, beside what discovery has shown. Where we may not read definitions,
// discovery by a ready API server has to do.
func (s *Set) undefined(ctx context.Context, gr schema.GroupResource, c *catalogue) error {
	_, err := s.reads().Resource(definitionResource).Get(ctx, gr.String(), metav1.GetOptions{})
	switch {
	case err == nil:
		return errors.New("its CustomResourceDefinition exists, but discovery does not show it")
	case apierrors.IsNotFound(err) && isOfObject(err), apierrors.IsForbidden(err):
	default:
		return err
	}
	services, err := s.reads().Resource(apiServiceResource).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err): // there are API servers without them
		return nil
	case err != nil:
		return err
	}
	for _, service := range services.Items {
		// One without a service only repeats what the API server has by itself.
		_, elsewhere, _ := unstructured.NestedMap(service.Object, "spec", "service")
		group, _, _ := unstructured.NestedString(service.Object, "spec", "group")
		version, _, _ := unstructured.NestedString(service.Object, "spec", "version")
		if elsewhere && group == gr.Group && !c.versions[schema.GroupVersion{Group: group, Version: version}] {
			return fmt.Errorf("the APIService %s exists, but discovery does not show its version", service.GetName())
		}
	}
	return nil
}

func (s *Set) serverReady(ctx context.Context) error {
	client := s.config.Discovery.RESTClient()
	if client == nil {
		return nil // a stand-in of a test
	}
	return client.Get().AbsPath("/readyz").Do(ctx).Error()
}

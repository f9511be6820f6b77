package informers

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
)

// leave deals with what the bus shows as existing and is not selected.
func (s *Set) leave(k event.Key, a event.Acked, c *Comparison) {
	if !s.tells(k) || failpoint.Bug("forget-deselected") {
		c.OutOfScope++
		return
	}
	c.Deselected++
	s.dirty.bury(k, event.Tombstone{UID: a.UID, Deselected: true, Observed: s.config.Now(), Cause: event.CauseReconcile})
	s.enqueue(k)
}

type pair struct {
	key   event.Key
	acked event.Acked
}

// settleOrphans asks for each namespace that the watch does not show: the API server
// removes one only when nothing is left in it, and nothing can be read in it then by who
// had his rights from it.
func (s *Set) settleOrphans(ctx context.Context, orphans map[string][]pair, c *Comparison) error {
	for _, namespace := range sortedKeys(orphans) {
		readCtx, cancel := context.WithTimeout(ctx, readTimeout)
		_, err := s.reads().Resource(namespaceResource).Get(readCtx, namespace, metav1.GetOptions{})
		cancel()
		switch {
		case apierrors.IsNotFound(err) && isOfObject(err):
			for _, p := range orphans[namespace] {
				c.Deleted++
				s.inferDelete(p.key, p.acked)
			}
		case err != nil:
			return fmt.Errorf("confirm that namespace %s is gone: %w", namespace, err)
		default:
			c.Waiting += len(orphans[namespace]) // the watch will bring it
		}
	}
	return nil
}

// leavePage is how many objects are listed at a time.
const leavePage = 500

// settleLeaving looks whether what is not selected any more is still there. Where we may not
// look it is taken for that: the bus is told that it is not selected, which is true.
func (s *Set) settleLeaving(ctx context.Context, r event.Resource, leaving map[string][]pair, c *Comparison) error {
	for _, namespace := range sortedKeys(leaving) {
		there, err := s.uidsIn(ctx, r, namespace)
		switch {
		case err != nil && !apierrors.IsForbidden(err):
			return fmt.Errorf("tell what of %s in namespace %s is gone: %w", r.GroupResource(), namespace, err)
		case err != nil:
			there = nil
		}
		for _, p := range leaving[namespace] {
			if there == nil || there[p.key.Name] == p.acked.UID {
				s.leave(p.key, p.acked, c)
			} else {
				c.Deleted++
				s.inferDelete(p.key, p.acked)
			}
		}
	}
	return nil
}

// uidsIn lists a namespace consistently, and gives the UIDs by name.
func (s *Set) uidsIn(ctx context.Context, r event.Resource, namespace string) (map[string]string, error) {
	client := resourceClient(s.reads(), scope{resource: r, namespace: namespace})
	uids := map[string]string{}
	for next := ""; ; {
		page, cancel := context.WithTimeout(ctx, readTimeout)
		list, err := client.List(page, metav1.ListOptions{Limit: leavePage, Continue: next})
		cancel()
		if err != nil {
			return nil, err
		}
		for _, u := range list.Items {
			uids[u.GetName()] = string(u.GetUID())
		}
		if next = list.GetContinue(); next == "" {
			return uids, nil
		}
	}
}

package discovery

import (
	"context"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Coverage describes how the informers currently cover a resource.
type Coverage struct {
	Everywhere bool // one watch covers all namespaces
	Working    bool // that watch is not forbidden
	Separately bool // each namespace has a separate watch

	Denied map[string]error // the namespaces without a watch, because access is denied
}

// Scopes decides which watches cover a resource. It returns the namespace of each watch and the namespaces to
// which access is denied. The namespace "" means one watch of all namespaces. now is the current coverage. To
// avoid flapping, Scopes replaces one watch with separate watches only at or below half the limit of
// namespaces, and separate watches with one watch only above twice the limit. A failed access review neither
// ends a denial nor replaces separate watches, because the API server might be unavailable for a moment.
func Scopes(ctx context.Context, r event.Resource, n *Namespaces, a *Access, now Coverage) (namespaces []string, denied map[string]error) {
	everywhere := []string{""}
	if !r.Namespaced {
		return a.permitted(ctx, r, everywhere, now)
	}
	if err := n.Ready(); err != nil {
		return nil, map[string]error{"": err}
	}
	selected, known := n.Selected()
	switch {
	case known && !n.SelectsMost() && len(selected) <= now.maxSeparate(n.maxSeparate):
		return a.permitted(ctx, r, selected, now)
	case now.Everywhere && now.Working:
		return everywhere, nil // without a review: the API server refuses a watch that it no longer allows
	case !known:
		return a.permitted(ctx, r, everywhere, now)
	}
	if denied, failed := a.denies(ctx, r, ""); denied != nil || failed != nil && (now.Separately || len(now.Denied) > 0) {
		return a.permitted(ctx, r, selected, now)
	}
	return everywhere, nil
}

func (c Coverage) maxSeparate(atFirst int) int {
	switch {
	case c.Everywhere:
		return atFirst / 2
	case c.Separately:
		return atFirst * 2
	}
	return atFirst
}

// permitted splits the namespaces into those in which the forwarder may list and watch the
// resource, and the denied ones.
func (a *Access) permitted(ctx context.Context, r event.Resource, namespaces []string, now Coverage) (names []string, denied map[string]error) {
	denied = map[string]error{}
	for _, namespace := range namespaces {
		err, failed := a.denies(ctx, r, namespace)
		if failed != nil {
			err = now.Denied[namespace]
		}
		if err != nil {
			denied[namespace] = err
		} else {
			names = append(names, namespace)
		}
	}
	return names, denied
}

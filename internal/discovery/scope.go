package discovery

import (
	"context"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Coverage is how a resource is watched at present.
type Coverage struct {
	Everywhere bool // by one watch of all namespaces
	Working    bool // that watch is not forbidden
	Separately bool // by a watch for each namespace
}

// Scopes decides by which watches a resource is covered: the namespaces, "" for one watch
// of all, and the ones without a watch because the forwarder lacks permission. The choice
// between separate watches and one changes only at half or twice the limit of namespaces, so that
// it doesn't alternate while the number of namespaces goes up and down.
func Scopes(ctx context.Context, r event.Resource, n *Namespaces, a *Access, now Coverage) (namespaces []string, denied map[string]error) {
	everywhere := []string{""}
	if !r.Namespaced {
		return a.permitted(ctx, r, everywhere)
	}
	if err := n.Ready(); err != nil {
		return nil, map[string]error{"": err}
	}
	selected, known := n.Selected()
	switch {
	case known && !n.SelectsMost() && len(selected) <= now.maxSeparate(n.maxSeparate):
		return a.permitted(ctx, r, selected)
	case now.Everywhere && now.Working:
		return everywhere, nil // whatever a review would answer now
	case !known || a.Denied(ctx, r, "") == nil:
		return a.permitted(ctx, r, everywhere)
	}
	return a.permitted(ctx, r, selected)
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

// permitted leaves out the namespaces in which the forwarder may not list and watch.
func (a *Access) permitted(ctx context.Context, r event.Resource, namespaces []string) (names []string, denied map[string]error) {
	denied = map[string]error{}
	for _, namespace := range namespaces {
		if err := a.Denied(ctx, r, namespace); err != nil {
			denied[namespace] = err
		} else {
			names = append(names, namespace)
		}
	}
	return names, denied
}

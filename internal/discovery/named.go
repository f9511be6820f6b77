package discovery

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/internal/apistream"
	"github.com/kuberelay/kuberelay/internal/selector"
)

// The intervals at which is asked whether named namespaces exist: while one doesn't, or the API
// server does not answer, and while all do.
const (
	missingInterval  = 10 * time.Second
	existingInterval = 10 * time.Minute
)

// FindNamespaces finds out which of the included namespaces do not exist, until ctx ends, if
// nothing watches namespaces. It needs get on each of them, and asks for none that it may not
// get. The WaitGroup is of its goroutine.
func (w Watcher) FindNamespaces(ctx context.Context, n *Namespaces, reads dynamic.Interface, a *Access) *sync.WaitGroup {
	var running sync.WaitGroup
	if n.NeedsWatch() || len(n.include) == 0 {
		return &running
	}
	running.Go(func() {
		due := n.Named()
		for ctx.Err() == nil {
			answered := w.findNamed(ctx, n, due, reads, a)
			pause := existingInterval
			if due = slices.Sorted(maps.Keys(n.Missing())); len(due) > 0 || !answered {
				pause = missingInterval
			}
			if !answered || len(due) == 0 {
				due = n.Named()
			}
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	})
	return &running
}

// findNamed asks for some namespaces. It reports whether the API server has answered for each.
func (w Watcher) findNamed(ctx context.Context, n *Namespaces, names []string, reads dynamic.Interface, a *Access) (answered bool) {
	before, missing := n.Missing(), map[string]string{}
	for _, name := range names {
		allowed, err := a.allows(ctx, "get", name)
		if err != nil {
			return false
		}
		if !allowed {
			continue // whether it exists is unknown
		}
		switch _, err := reads.Resource(NamespaceResource).Get(ctx, name, metav1.GetOptions{}); {
		case apierrors.IsNotFound(err):
			missing[name] = before[name]
		case err != nil && !apierrors.IsForbidden(err):
			return false
		}
	}
	if !maps.Equal(before, missing) {
		existing := w.listNames(ctx, a)
		for name := range missing {
			missing[name] = selector.Similar(name, existing)
		}
	}
	n.noteMissing(missing)
	return true
}

// listNames returns the names of all namespaces, none if they cannot be listed.
func (w Watcher) listNames(ctx context.Context, a *Access) (names []string) {
	if allowed, err := a.allows(ctx, "list", ""); err != nil || !allowed {
		return nil
	}
	list, err := w.Streams.List(ctx, apistream.Resource{GroupVersionResource: NamespaceResource}, metav1.ListOptions{ResourceVersion: "0"}, readMetadata)
	if err != nil {
		return nil
	}
	for _, o := range list.Items {
		if m, ok := o.(metav1.ObjectMetaAccessor); ok {
			names = append(names, m.GetObjectMeta().GetName())
		}
	}
	return names
}

// allows asks about a namespace, "" for all of them.
func (a *Access) allows(ctx context.Context, verb, namespace string) (bool, error) {
	if a == nil || a.reviews == nil {
		return true, nil
	}
	allowed, _, err := a.review(ctx, authorizationv1.ResourceAttributes{ // a Role in the namespace can allow it, too
		Namespace: namespace, Name: namespace, Verb: verb, Version: "*", Resource: NamespaceResource.Resource,
	})
	return allowed, err
}

// Missing returns the included namespaces that are known not to exist, each with a similar name
// that exists, "" for none.
func (n *Namespaces) Missing() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.NeedsWatch() {
		return n.unknown(n.include.UnsortedList())
	}
	return maps.Clone(n.missing)
}

// MissingExcluded returns the excluded namespaces that are known not to exist, as Missing does.
func (n *Namespaces) MissingExcluded() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unknown(n.exclude.UnsortedList())
}

// unknown returns those of the names that are not known. The caller holds the lock.
func (n *Namespaces) unknown(names []string) map[string]string {
	missing := map[string]string{}
	if !n.NeedsWatch() || !n.Listed() {
		return missing
	}
	for _, name := range names {
		if _, ok := n.known[name]; ok {
			continue
		}
		similar, known := n.similar[name]
		if !known {
			similar = selector.Similar(name, slices.Collect(maps.Keys(n.known)))
			if n.similar == nil {
				n.similar = map[string]string{}
			}
			n.similar[name] = similar
		}
		missing[name] = similar
	}
	return missing
}

// SelectsNone reports whether there is a label selector that is known to match no namespace.
func (n *Namespaces) SelectsNone() bool {
	if n.selector == nil {
		return false
	}
	selected, known := n.Selected()
	return known && len(selected) == 0
}

// Looked reports whether Missing is complete: every included namespace was looked for once, as
// far as that is allowed.
func (n *Namespaces) Looked() bool {
	if n.NeedsWatch() {
		return n.Listed()
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	return len(n.include) == 0 || n.looked
}

func (n *Namespaces) noteMissing(missing map[string]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.missing, n.looked = missing, true
}

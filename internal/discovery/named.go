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

// The intervals at which [Watcher.FindNamespaces] checks that the included namespaces exist.
const (
	missingInterval  = 10 * time.Second // for missing namespaces, and for all namespaces while the API server doesn't respond
	existingInterval = 10 * time.Minute // for the namespaces that exist
)

// FindNamespaces starts a goroutine that repeatedly checks which of the included namespaces exist,
// until ctx ends. It does nothing if namespaces are watched. The goroutine skips namespaces that
// the forwarder may not get. The caller must wait for the returned WaitGroup.
func (w Watcher) FindNamespaces(ctx context.Context, n *Namespaces, reads dynamic.Interface, a *Access) *sync.WaitGroup {
	var running sync.WaitGroup
	if n.NeedsWatch() || len(n.include) == 0 {
		return &running
	}
	running.Go(func() {
		var due []string
		var checked time.Time // when all included namespaces were checked
		for ctx.Err() == nil {
			if len(due) == 0 || time.Since(checked) >= existingInterval {
				due, checked = n.Named(), time.Now()
			}
			answered := w.findNamed(ctx, n, due, reads, a)
			pause := existingInterval
			if due = slices.Sorted(maps.Keys(n.Missing())); len(due) > 0 || !answered {
				pause = missingInterval
			}
			if !answered {
				due = nil
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
	return &running
}

// findNamed checks which of the named namespaces exist. It reports whether the API server responded
// to every check.
func (w Watcher) findNamed(ctx context.Context, n *Namespaces, names []string, reads dynamic.Interface, a *Access) (answered bool) {
	before, missing := n.Missing(), map[string]string{}
	for _, name := range names {
		allowed, err := a.allows(ctx, "get", name)
		if err != nil {
			return false
		}
		if !allowed {
			continue // the namespace might or might not exist
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

// listNames returns the names of all namespaces, or nil if they can't be listed.
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

// allows reports whether a verb is allowed on a namespace. The namespace "" means all namespaces.
func (a *Access) allows(ctx context.Context, verb, namespace string) (bool, error) {
	if a == nil {
		return true, nil
	}
	allowed, _, err := a.review(ctx, authorizationv1.ResourceAttributes{ // a Role in the namespace can also allow this
		Namespace: namespace, Name: namespace, Verb: verb, Version: "*", Resource: NamespaceResource.Resource,
	})
	return allowed, err
}

// Missing returns the included namespaces that don't exist, each with a similar name that exists, or
// with "" if there is none.
func (n *Namespaces) Missing() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.NeedsWatch() {
		return n.unknown(n.include.UnsortedList())
	}
	return maps.Clone(n.missing)
}

// MissingExcluded is like [Namespaces.Missing], but for the excluded namespaces.
func (n *Namespaces) MissingExcluded() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unknown(n.exclude.UnsortedList())
}

// unknown returns the names that don't exist, in the form of Missing. The caller holds the lock.
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

// SelectsNone reports whether the selection has a label selector that matches no namespace.
func (n *Namespaces) SelectsNone() bool {
	if n.selector == nil {
		return false
	}
	selected, known := n.Selected()
	return known && len(selected) == 0
}

// Looked reports whether Missing and MissingExcluded have their final result. If only names are excluded
// and the API server forbids a list of namespaces, that result is empty.
func (n *Namespaces) Looked() bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.NeedsWatch() {
		return n.Listed() || n.selector == nil && apierrors.IsForbidden(n.failing)
	}
	return len(n.include) == 0 || n.missing != nil
}

func (n *Namespaces) noteMissing(missing map[string]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.missing = missing
}

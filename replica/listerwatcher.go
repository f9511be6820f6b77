package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// Options selects the objects of a ListerWatcher and their Go type.
type Options struct {
	// Object is a pointer to a value of the Go type of the objects, such as &corev1.Pod{}. Use
	// &metav1.PartialObjectMetadata{} for metadata only. If nil, the type is
	// *unstructured.Unstructured.
	Object runtime.Object

	// Cluster is the cluster name (KUBERELAY_CLUSTER_NAME). If Cluster is empty, the bus must have
	// selected objects of only one cluster, because objects of several clusters can have the same name.
	// The bus may also have deletes and markers of clusters without objects.
	Cluster string

	Namespace string          // all namespaces if empty
	Labels    labels.Selector // everything if nil
}

// ListerWatcher lists and watches the objects of one resource on the bus. It is safe for
// concurrent use. The methods without a context can block until the bus is closed.
type ListerWatcher struct {
	bus  *Bus
	gvr  schema.GroupVersionResource
	opts Options

	mu     sync.Mutex
	places map[string][]*place // where watches can continue, by resourceVersion
	points map[string]bool     // clusters for which a consistency point was read
}

var (
	_ cache.ListerWatcher            = (*ListerWatcher)(nil)
	_ cache.ListerWatcherWithContext = (*ListerWatcher)(nil)
)

// ListerWatcher returns a ListerWatcher for a resource, such as
// {Group: "apps", Version: "v1", Resource: "deployments"}. The version must be the version of the Go
// type in the options. For unstructured objects and metadata only, the version does not matter: each
// object has its version on the bus. The method does no I/O.
func (b *Bus) ListerWatcher(gvr schema.GroupVersionResource, o Options) *ListerWatcher {
	if o.Labels == nil {
		o.Labels = labels.Everything()
	}
	return &ListerWatcher{bus: b, gvr: gvr, opts: o, places: map[string][]*place{}, points: map[string]bool{}}
}

// place is the state of a list or watch at its end, from which a watch can continue.
type place struct {
	cursor publish.Cursor
	table  *table
	points points
	at     time.Time // time of the end; wall clock only, because the monotonic clock stops during sleep
}

// point returns the consistency point that the list or watch has reached, and false if it has reached
// none.
func (p *place) point() (Point, bool) { return p.points.of(p.table.cluster, p.cursor.Positions) }

// version returns the resourceVersion of a list or bookmark from which a watch can continue.
func (p *place) version() string {
	position := resourceVersion(p.cursor)
	if point, ok := p.point(); ok {
		return point.encode() + positionAfter + position
	}
	return position
}

// leave records a place, so that a watch can continue from it. It also drops old places.
func (lw *ListerWatcher) leave(at place) {
	p := &at
	lw.mu.Lock()
	defer lw.mu.Unlock()
	p.at = time.Now().Round(0)
	for version, all := range lw.places {
		if lw.places[version] = slices.DeleteFunc(all, (*place).isOld); len(lw.places[version]) == 0 {
			delete(lw.places, version)
		}
	}
	version := p.version()
	lw.places[version] = append(lw.places[version], p)
}

// take returns and removes the place with the given version. It returns nil if no such place was recorded,
// or if the place is too old.
func (lw *ListerWatcher) take(version string) *place {
	lw.mu.Lock()
	defer lw.mu.Unlock()
	all := lw.places[version]
	if len(all) == 0 {
		return nil
	}
	p := all[len(all)-1]
	if lw.places[version] = all[:len(all)-1]; len(all) == 1 {
		delete(lw.places, version)
	}
	if p.isOld() {
		return nil
	}
	return p
}

func (p *place) isOld() bool { return time.Now().Round(0).Sub(p.at) > publish.MaxAway }

func (lw *ListerWatcher) sawPoint(cluster string) {
	lw.mu.Lock()
	defer lw.mu.Unlock()
	lw.points[cluster] = true
}

// hadPoints reports whether this ListerWatcher has read a consistency point of a cluster. If cluster is
// empty, it considers all clusters.
func (lw *ListerWatcher) hadPoints(cluster string) bool {
	lw.mu.Lock()
	defer lw.mu.Unlock()
	return lw.points[cluster] || cluster == "" && len(lw.points) > 0
}

// List implements [cache.Lister].
func (lw *ListerWatcher) List(o metav1.ListOptions) (runtime.Object, error) {
	return lw.ListWithContext(context.Background(), o)
}

// ListWithContext returns a [metav1.List] of all objects and ignores Limit. It blocks until it has read
// the bus and the first snapshot of the resource is complete. It does not support selectors in the
// list options. Use [Options] instead.
func (lw *ListerWatcher) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if err := check(o); err != nil {
		return nil, err
	}
	f := &feed{lw: lw}
	errListed := errors.New("listed")
	list := &metav1.List{}
	f.started = func() error {
		for _, object := range f.table.objects() {
			list.Items = append(list.Items, runtime.RawExtension{Object: object})
		}
		return errListed
	}
	if err := f.run(ctx); !errors.Is(err, errListed) {
		return nil, fmt.Errorf("list %s from the bus: %w", lw.gvr.GroupResource(), err)
	}
	list.ResourceVersion = f.version()
	lw.leave(f.place)
	return list, nil
}

// check returns an error for options that a list or watch does not support.
func check(o metav1.ListOptions) error {
	switch {
	case o.LabelSelector != "" || o.FieldSelector != "":
		return apierrors.NewBadRequest("selectors in list options are not supported: use Options.Namespace and Options.Labels of package replica")
	case o.ResourceVersionMatch == metav1.ResourceVersionMatchExact:
		return apierrors.NewBadRequest("resourceVersionMatch=Exact is not supported: the bus has only the current state")
	}
	return nil
}

// Watch implements [cache.Watcher].
func (lw *ListerWatcher) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return lw.WatchWithContext(context.Background(), o)
}

// WatchWithContext returns a watch. With the resourceVersion of a list from this ListerWatcher, or
// of the last bookmark of a watch that timed out, the watch continues there. This works once for
// each list or bookmark, within a few minutes. If the resourceVersion is empty or 0, or
// SendInitialEvents is true, the watch begins with the current state. For any other
// resourceVersion, WatchWithContext returns status 410 (Expired). It honors AllowWatchBookmarks and
// TimeoutSeconds. The watch ends when ctx ends.
func (lw *ListerWatcher) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := check(o); err != nil {
		return nil, err
	}
	w := &watcher{result: make(chan watch.Event), options: o}
	w.feed = feed{lw: lw, emit: w.send, resolved: w.resolved, started: w.start}
	if from := o.ResourceVersion; from != "" && from != "0" && (o.SendInitialEvents == nil || !*o.SendInitialEvents) {
		w.feed.from = lw.take(from)
		if w.feed.from == nil {
			return nil, apierrors.NewResourceExpired(fmt.Sprintf("the bus cannot continue at resourceVersion %q", from))
		}
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.stopped = ctx.Done()
	go w.run(ctx)
	return w, nil
}

// resourceVersion encodes a cursor as a resourceVersion. It does not add a consistency point; see
// [place.version].
func resourceVersion(c publish.Cursor) string {
	var positions []string
	for log, position := range c.Positions {
		if c.Stream.IsZero() {
			positions = append(positions, fmt.Sprintf("%d:%d", log.Partition, publish.Offset(position)))
		} else {
			positions = append(positions, fmt.Sprintf("%d@%s", position, c.Stream.UTC().Format(time.RFC3339Nano)))
		}
	}
	slices.Sort(positions)
	return strings.Join(positions, ",")
}

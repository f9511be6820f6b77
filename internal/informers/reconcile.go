package informers

import (
	"context"
	"fmt"
	"iter"
	"net/http"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Comparison is what one reconciliation of a resource found.
type Comparison struct {
	Deleted    int // gone from the cluster while nobody watched; their deletes are due
	OutOfScope int // still there, but no longer covered by namespaces and selectors; left alone
	Waiting    int // the informers are behind the bus and will catch up
	Restored   bool
}

// readers is how many objects are asked for at once.
const readers = 16

// Reconcile compares what the bus shows as existing of one resource with what is
// there, and enqueues every key that differs. An object that no informer shows
// gets a tombstone only if a consistent read of that very object confirms that
// it is gone: a cache, ours or the API server's, may be behind the bus.
//
// It compares nothing of a resource whose informers have not synced, or of which
// it cannot be said for certain whether the cluster serves it.
//
// If a consistent read shows an object in an older version than the bus has,
// the cluster's history itself went back (etcd was restored from a backup): a
// new epoch begins.
func (s *Set) Reconcile(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) (Comparison, error) {
	var c Comparison
	w := s.watchedFor(gr)
	switch {
	case w == nil && !s.isResolved():
		return c, nil // nothing is watched yet; Discovered will call for it
	case w == nil:
		return s.reconcileGone(ctx, gr, acked)
	}
	if !w.synced() {
		return c, nil
	}
	epoch := s.Epoch()
	var doubtful []doubt
	for k, a := range acked {
		if !a.Live() {
			continue
		}
		i := w.informer(k)
		if i == nil {
			c.OutOfScope++
			continue
		}
		live := i.get(k)
		switch {
		case live == nil || string(live.UID) != a.UID || behind(live.ResourceVersion, a, epoch):
			doubtful = append(doubtful, doubt{key: k, acked: a, informer: i})
		case live.ResourceVersion != a.ResourceVersion:
			s.config.Enqueue(k)
		}
	}
	err := s.settleDoubts(ctx, doubtful, epoch, &c)
	return c, err
}

// doubt is an object of which the informer shows less than the bus.
type doubt struct {
	key      event.Key
	acked    event.Acked
	informer *informer
}

// settleDoubts reads each object from the API server, consistently: a get without
// a resourceVersion is answered from etcd.
func (s *Set) settleDoubts(ctx context.Context, doubts []doubt, epoch uint16, c *Comparison) error {
	found := make([]finding, len(doubts))
	group, readCtx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for n, d := range doubts {
		group.Go(func() (err error) {
			found[n], err = s.read(readCtx, d, epoch)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for n, d := range doubts {
		switch found[n] {
		case isGone:
			c.Deleted++
			s.dirty.bury(d.key, event.Tombstone{UID: d.acked.UID, Observed: s.config.Now(), Cause: event.CauseReconcile})
			s.config.Enqueue(d.key)
		case isThere:
			if s.selects() && d.informer.get(d.key) == nil {
				c.OutOfScope++
			} else {
				c.Waiting++
			}
		case isOlder:
			c.Restored = true
		}
	}
	if c.Restored {
		s.beginEpoch(epoch)
	}
	return nil
}

// finding is what a consistent read says of an object that the bus shows.
type finding int

const (
	isThere finding = iota // it exists, in the version of the bus or a later one
	isGone                 // it does not exist, or its name belongs to another UID
	isOlder                // it exists in an earlier version than the bus has
)

func (s *Set) read(ctx context.Context, d doubt, epoch uint16) (finding, error) {
	sc := d.informer.scope
	sc.namespace = d.key.Namespace
	o, err := resourceClient(s.config.Dynamic, sc).Get(ctx, d.key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && isOfObject(err):
		return isGone, nil
	case err != nil:
		return 0, fmt.Errorf("confirm that %s is gone: %w", d.key, err)
	case string(o.GetUID()) != d.acked.UID:
		return isGone, nil
	case behind(o.GetResourceVersion(), d.acked, epoch):
		return isOlder, nil
	default:
		return isThere, nil
	}
}

// isOfObject tells the answer «there is no such object» from «there is no such
// path», which the API server gives while a resource comes or goes. Only the
// first names the object.
func isOfObject(err error) bool {
	status, ok := err.(apierrors.APIStatus) //nolint:errorlint // client-go returns it bare
	return ok && status.Status().Details != nil && status.Status().Details.Name != ""
}

// behind tells whether a version is an earlier state than what the bus has.
func behind(version string, acked event.Acked, epoch uint16) bool {
	if acked.Epoch != epoch {
		return acked.Epoch > epoch
	}
	order, err := resourceversion.CompareResourceVersion(version, acked.ResourceVersion)
	return err == nil && order < 0
}

// selects tells whether the API server shows us only a part of a resource.
func (s *Set) selects() bool { return s.config.LabelSelector != "" || s.config.FieldSelector != "" }

// reconcileGone deals with a resource that nothing watches: if the cluster does
// not serve it any more, its objects are gone; if it is only not selected any
// more, they are left alone.
func (s *Set) reconcileGone(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) (Comparison, error) {
	var c Comparison
	gone, err := s.resourceGone(ctx, gr)
	if err != nil {
		return c, err
	}
	for k, a := range acked {
		switch {
		case !a.Live():
		case gone:
			c.Deleted++
			s.dirty.bury(k, event.Tombstone{UID: a.UID, Observed: s.config.Now(), Cause: event.CauseReconcile})
			s.config.Enqueue(k)
		default:
			c.OutOfScope++
		}
	}
	return c, nil
}

// resourceGone asks anew, and only an API server that says it is ready: one that
// has just started does not know of its custom resources yet.
func (s *Set) resourceGone(ctx context.Context, gr schema.GroupResource) (bool, error) {
	if client := s.config.Discovery.RESTClient(); client != nil {
		var code int
		err := client.Get().AbsPath("/readyz").Do(ctx).StatusCode(&code).Error()
		if code != http.StatusForbidden && err != nil {
			return false, fmt.Errorf("tell whether the cluster still serves %s: the API server is not ready: %w", gr, err)
		}
	}
	c, err := discover(ctx, s.config.Discovery)
	if err != nil {
		return false, fmt.Errorf("tell whether the cluster still serves %s: %w", gr, err)
	}
	if !c.gone(gr) {
		return false, nil
	}
	_, err = s.config.Dynamic.Resource(definitionResource).Get(ctx, gr.String(), metav1.GetOptions{})
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err), nil
}

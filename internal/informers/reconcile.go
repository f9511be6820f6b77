package informers

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
)

// Comparison is what one reconciliation of a resource found.
type Comparison struct {
	Deleted    int // gone from the cluster while nobody watched; their deletes are due
	Deselected int // still there, but no longer selected; that the bus is told so is due
	OutOfScope int // likewise, but left alone
	Waiting    int // the informers have not synced, or are behind the bus and will catch up
	Restored   bool
}

// readers is how many objects are asked for at once, and readTimeout how long one may
// take: an answer that is lost, as of an API server that stood still, would hold up all
// comparisons until the connection is found dead.
const (
	readers     = 16
	readTimeout = 10 * time.Second
)

// Reconcile compares what the bus shows of one resource with what is there, and
// enqueues every key that differs. An object that no informer shows gets a
// tombstone only if a consistent read of that very object confirms that it is
// gone: a cache, ours or the API server's, may be behind the bus.
//
// It compares nothing of an informer that has not synced, or of a resource of
// which it cannot be said for certain whether the cluster serves it. On an error
// what could be confirmed has been acted upon, and the rest is to be tried again.
//
// If a consistent read shows an object in an older version than the bus has,
// the cluster's history itself went back (etcd was restored from a backup): a
// new epoch begins.
func (s *Set) Reconcile(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) (Comparison, error) {
	c, err := s.compare(ctx, gr, acked)
	s.metrics.noteOutOfScope(gr.String(), c.OutOfScope, s.watchedFor(gr) != nil)
	return c, err
}

func (s *Set) compare(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) (Comparison, error) {
	var c Comparison
	w := s.watchedFor(gr)
	switch {
	case w == nil && s.lastAnswer() == nil:
		return c, nil // nothing is watched yet; Discovered will call for it
	case w == nil:
		return s.reconcileGone(ctx, gr, acked)
	}
	if err := s.renewMarker(ctx, w); err != nil {
		return c, fmt.Errorf("look whether the bus still has the snapshot markers of %s: %w", gr, err)
	}
	epoch := s.Epoch()
	namespaces := s.namespaces.ready() // nil if it is known which are selected
	var doubtful []doubt
	leaving := map[string][]pair{}
	orphans := map[string][]pair{} // objects of namespaces that seem to be gone
	for k, a := range acked {
		if a.UID == "" {
			continue
		}
		if a.Epoch > epoch {
			c.Waiting++ // all informers start anew, and then this is called for again
			s.RaiseEpoch(a.Epoch)
			continue
		}
		if namespaced := k.Namespace != ""; namespaced != w.resource.Namespaced {
			if a.Live() {
				c.Deleted++
				s.inferDelete(k, a) // another resource had this name once
			}
			continue
		}
		i := w.informer(k)
		switch {
		case namespaces != nil && k.Namespace != "":
			c.Waiting++
		case !s.namespaces.exists(k.Namespace) && a.Live():
			orphans[k.Namespace] = append(orphans[k.Namespace], pair{k, a})
		case !s.selects(k) && a.Live() && w.followed && !s.follow.complete.Load():
			c.Waiting++ // who refers to it may not have been seen
		case !s.selects(k) && a.Live() && (!s.tells(k) || i.showsUID(k, a.UID)):
			s.leave(k, a, &c)
		case !s.selects(k) && a.Live():
			leaving[k.Namespace] = append(leaving[k.Namespace], pair{k, a}) // or gone
		case i == nil && a.Live() && failpoint.Bug("skip-synced"):
			c.Deleted++
			s.inferDelete(k, a)
		case i == nil && a.Live():
			c.Waiting++ // it is being started, or we may not
		case i == nil, !s.selects(k):
		case !i.synced() && !failpoint.Bug("skip-synced"):
			c.Waiting++
		default:
			live := i.get(k)
			switch {
			case differs(live, a, epoch):
				doubtful = append(doubtful, doubt{key: k, acked: a, informer: i})
			case live != nil && outOfStep(live, a):
				s.enqueueBehind(k)
			}
		}
	}
	err := s.settleDoubts(ctx, doubtful, epoch, &c)
	if err == nil {
		err = s.settleOrphans(ctx, orphans, &c)
	}
	if err == nil {
		err = s.settleLeaving(ctx, w.resource, leaving, &c)
	}
	return c, err
}

// differs tells whether what an informer shows cannot follow from what the bus
// has: an object is missing, or is in an earlier state.
func differs(live *event.Object, a event.Acked, epoch uint16) bool {
	if a.Live() && (live == nil || string(live.UID) != a.UID) {
		return true
	}
	return live != nil && behind(live.ResourceVersion, a, epoch)
}

// outOfStep tells whether the bus may have to be told of what an informer shows.
func outOfStep(live *event.Object, a event.Acked) bool {
	switch {
	case live.Unselected, !a.Live():
		return a.Live() != !live.Unselected
	case live.Digest != a.Digest:
		return true
	}
	return live.Digest.None() && live.ResourceVersion != a.ResourceVersion
}

// doubt is an object of which the informer shows less than the bus.
type doubt struct {
	key      event.Key
	acked    event.Acked
	informer *informer

	// early tells that the informer had not come to the version that the bus has, when the
	// object was about to be read: another writer's watch was faster.
	early bool
}

// errEarly is why a comparison is to be made again. A delete that was inferred before the
// watch has come to the object would be followed by what the watch shows of it then: it
// would be created and deleted once more.
var errEarly = errors.New("the bus has objects of versions that the watch has not come to")

// settleDoubts reads each object from the API server, consistently: a get without
// a resourceVersion is answered from etcd.
func (s *Set) settleDoubts(ctx context.Context, doubts []doubt, epoch uint16, c *Comparison) error {
	found := make([]answerOf, len(doubts))
	early := false
	for n, d := range doubts {
		// Asked before the read, so that what the watch has brought is in the indexer after it.
		doubts[n].early = d.acked.Live() && d.acked.Epoch == epoch && earlier(d.informer.shared.LastSyncResourceVersion(), d.acked.ResourceVersion)
	}
	group, readCtx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for n, d := range doubts {
		group.Go(func() (err error) {
			if readCtx.Err() == nil {
				found[n], err = s.read(readCtx, d, epoch)
			}
			return err
		})
	}
	err := group.Wait()
	for n, d := range doubts {
		live := d.informer.get(d.key)
		switch found[n].finding {
		case isUnknown:
		case isEarly:
			c.Waiting++
			early = true
		case isGone:
			if live != nil && string(live.UID) == d.acked.UID {
				c.Waiting++ // the watch will bring its delete, with the last state
				continue
			}
			c.Deleted++
			s.inferDelete(d.key, d.acked)
		case isThere:
			switch {
			case !s.filters() || d.informer.followed || live != nil:
				c.Waiting++
			case !s.config.TellDeselected:
				c.OutOfScope++
			case d.informer.shows(found[n].version):
				s.leave(d.key, d.acked, c) // labels or fields do not match
			default:
				c.Waiting++
			}
		case isOlder:
			c.Restored = true
		}
	}
	if c.Restored {
		s.RaiseEpoch(epoch + 1)
	}
	if early && err == nil {
		err = errEarly
	}
	return err
}

func (s *Set) inferDelete(k event.Key, a event.Acked) {
	s.metrics.inferred.WithLabelValues(k.GroupResource().String()).Inc()
	s.dirty.bury(k, event.Tombstone{UID: a.UID, Observed: s.config.Now(), Cause: event.CauseReconcile})
	s.enqueue(k)
}

// finding is what a consistent read says of an object that the bus knows.
type finding int

const (
	isUnknown finding = iota // it was not read
	isThere                  // what it says, the bus has or the informer will bring
	isGone                   // it does not exist, or its name belongs to another UID
	isOlder                  // it exists in an earlier version than the bus has
	isEarly                  // it is gone, and the watch will first show that it was there
)

// answerOf is what a read found, and in which version.
type answerOf struct {
	finding
	version string
}

func (s *Set) read(ctx context.Context, d doubt, epoch uint16) (answerOf, error) {
	sc := d.informer.scope
	sc.namespace = d.key.Namespace
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	o, err := resourceClient(s.reads(), sc).Get(ctx, d.key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && isOfObject(err):
		switch {
		case !d.acked.Live():
			return answerOf{finding: isThere}, nil
		case d.early:
			return s.whetherEarly(ctx, d, sc)
		}
		return answerOf{finding: isGone}, nil
	case failpoint.Bug("trust-failed-read") && err != nil,
		failpoint.Bug("skip-synced") && d.informer.get(d.key) == nil,
		failpoint.Bug("out-of-scope-is-deleted") && d.informer.get(d.key) == nil:
		return answerOf{finding: isGone}, nil
	case err != nil:
		return answerOf{}, fmt.Errorf("confirm that %s is gone: %w", d.key, err)
	case d.acked.Live() && string(o.GetUID()) != d.acked.UID:
		if d.early {
			return s.whetherEarly(ctx, d, sc)
		}
		return answerOf{finding: isGone}, nil
	case behind(o.GetResourceVersion(), d.acked, epoch) && !failpoint.Bug("ignore-epoch"):
		return answerOf{finding: isOlder}, nil
	default:
		return answerOf{isThere, o.GetResourceVersion()}, nil
	}
}

// whetherEarly tells a watch that is late from a history that went back, in which nobody
// will ever come to the version that the bus has. A list names the present version.
func (s *Set) whetherEarly(ctx context.Context, d doubt, sc scope) (answerOf, error) {
	list, err := resourceClient(s.reads(), sc).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", d.key.Name).String(), Limit: 1})
	switch {
	case err != nil:
		return answerOf{}, fmt.Errorf("confirm that %s is gone: %w", d.key, err)
	case earlier(list.GetResourceVersion(), d.acked.ResourceVersion):
		return answerOf{finding: isGone}, nil
	}
	return answerOf{finding: isEarly}, nil
}

// isOfObject tells the answer «there is no such object» from «there is no such
// path», which the API server gives while a resource comes or goes. Only the
// first names the object.
func isOfObject(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	return ok && status.Status().Details != nil && status.Status().Details.Name != ""
}

// behind tells whether a version is an earlier state than what the bus has. In a
// later epoch no version is.
func behind(version string, acked event.Acked, epoch uint16) bool {
	if acked.Epoch < epoch {
		return false
	}
	return earlier(version, acked.ResourceVersion)
}

// filters tells whether the API server shows us only a part of a resource.
func (s *Set) filters() bool { return s.config.LabelSelector != "" || s.config.FieldSelector != "" }

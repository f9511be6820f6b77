package informers

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/revision"
	"github.com/kuberelay/kuberelay/internal/informers/progress"
)

// history is what an informer knows of the history of the API server, besides what its
// indexer shows.
type history struct {
	doubtful bool      // a watch failed since the last list or the last proof
	until    time.Time // when the last watch ends by itself

	// floor is the version of the last list, "" while that is not known. An object that the
	// list did not have was deleted by then.
	floor string
	// last is the change with the highest version that a watch showed, nil for none.
	last *change
}

// change is a change of an object as a watch shows it.
type change struct {
	namespace, name, version string
	deleted                  bool // it was, or has left the selection
}

func (i *informer) doubtHistory() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.history.doubtful = true
}

// listed begins a new history with a list of a version, "" if [informer.shown] will get the
// version.
func (i *informer) listed(version string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.history = history{floor: version}
}

// opened records that a watch is open, and the seconds after which the API server ends it. A
// doubt that arose after [informer.stopCount] returned stops remains.
func (i *informer) opened(now time.Time, seconds *int64, stops int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.history.doubtful, i.history.until = i.history.doubtful && i.stops != stops, now
	if seconds != nil {
		i.history.until = now.Add(time.Duration(*seconds) * time.Second)
	}
}

// shown records an event of a watch, on its way to the indexer.
func (i *informer) shown(e watch.Event) {
	o, err := meta.Accessor(e.Object)
	if err != nil {
		return // an error's status
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch e.Type {
	case watch.Bookmark:
		if progress.IsListEnd(e) {
			i.history.floor = o.GetResourceVersion()
		}
	case watch.Added, watch.Modified, watch.Deleted:
		if last := i.history.last; last == nil || revision.IsEarlier(last.version, o.GetResourceVersion()) {
			i.history.last = &change{o.GetNamespace(), o.GetName(), o.GetResourceVersion(), e.Type == watch.Deleted}
		}
	}
}

// sameHistory proves, before a watch continues at a version, that the API server still has
// the same history. If the last watch did not end by itself, the API server was away, and
// etcd may have been restored from a backup. If the restored cluster has made as many changes
// as were lost, the API server takes the old version of the watch for one of its own, and the
// indexer would show lost objects forever.
//
// The proof is the last change that a watch showed: the API server has it in its history at
// that very version. It proves the history up to that version and no further, whatever a
// bookmark says, so the watch continues from there. It cannot continue from an earlier
// version, because it would show again what came and went. Without a proof, sameHistory
// returns the error that makes client-go list again, which is always right but costs more.
//
// A watch shows changes only. Objects may be served in another way without a change: after a
// change of their definition, or by an API server of another build. Then the watch cannot
// continue either.
func (s *Set) sameHistory(ctx context.Context, i *informer, version string) (from string, err error) {
	i.mu.Lock()
	h := i.history
	i.mu.Unlock()
	ended := !h.doubtful && !s.config.Now().Before(h.until)
	switch same, err := s.sameContent(ctx, i, ended); {
	case err != nil:
		return "", err
	case !same:
		return "", unproven(i)
	case ended:
		return version, nil
	}
	if h.last == nil || h.floor == "" || revision.IsEarlier(h.last.version, h.floor) {
		return "", unproven(i)
	}
	same, err := s.inHistory(ctx, i, h.last)
	switch {
	case err != nil:
		return "", err
	case !same:
		return "", unproven(i)
	}
	if revision.IsEarlier(version, h.last.version) { // the change did not arrive in the indexer
		return version, nil
	}
	return h.last.version, nil
}

func unproven(i *informer) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("the last known change of %s is not in the API server's history", i.resource.GroupResource()))
}

// inHistory reports whether a change was made at its version, in the present history of the
// API server. It is false too if that cannot be known, for example after a compaction.
func (s *Set) inHistory(ctx context.Context, i *informer, c *change) (bool, error) {
	at, err := s.versionAt(ctx, i, c, c.version)
	if err != nil || !c.deleted {
		return at == c.version, decisive(err)
	}
	if at != "" {
		return false, nil
	}
	number, err := strconv.ParseUint(c.version, 10, 64)
	if err != nil || number == 0 {
		return false, nil
	}
	before, err := s.versionAt(ctx, i, c, strconv.FormatUint(number-1, 10))
	return before != "", decisive(err)
}

// decisive drops the errors by which the API server says that it does not know.
func decisive(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || isTooLarge(err) {
		return nil
	}
	return err
}

// isTooLarge reports whether the API server says that a version is in the future.
func isTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// versionAt returns the version of a selected object at a version of the cluster, "" if
// there was no such object.
func (s *Set) versionAt(ctx context.Context, i *informer, c *change, version string) (string, error) {
	sc := i.scope
	sc.namespace = c.namespace
	o := s.selected(i.scope, metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	name := fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String()
	if o.FieldSelector != "" {
		name += "," + o.FieldSelector
	}
	o.FieldSelector = name
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := resourceClient(s.config.Dynamic, sc).List(ctx, o)
	if err != nil || len(list.Items) == 0 {
		return "", err
	}
	return list.Items[0].GetResourceVersion(), nil
}

// requestTimeout bounds a single request. An answer may be lost, for example when the API
// server stops responding.
const requestTimeout = 10 * time.Second

// Epoch counts how often the history of a resource went back. The latest events on the bus
// carry it in their sequence, and nothing else stores it, so that it never disagrees with
// them. If nothing was published in an epoch before the process died, it is found again.
//
// Each resource has an epoch of its own. A restore of etcd takes every resource back, and
// the comparison of each finds that by itself. The storage of an aggregated API server may
// go back alone, any number of times.
func (s *Set) Epoch(gr schema.GroupResource) uint16 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.epochOf(gr)
}

func (s *Set) epochOf(gr schema.GroupResource) uint16 { return max(s.firstEpoch, s.epochs[gr]) }

// RaiseEpoch says that the bus has events of an epoch of a resource, or that the epoch
// begins. If informers of the resource run, it takes effect when they have started again:
// they may hold states of the history before, which would count as later states in the new
// epoch. There is no epoch after [event.LastEpoch].
func (s *Set) RaiseEpoch(gr schema.GroupResource, to uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epochs[gr] = max(s.epochs[gr], min(to, event.LastEpoch))
	s.noteRaised()
}

// RaiseEpochs does so for all resources, including those that are not known yet.
func (s *Set) RaiseEpochs(to uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.firstEpoch = max(s.firstEpoch, min(to, event.LastEpoch))
	s.noteRaised()
}

func (s *Set) noteRaised() {
	for gr, w := range s.watched {
		if w.epoch < s.epochOf(gr) {
			select {
			case s.raised <- struct{}{}:
			default:
			}
			return
		}
	}
}

// turnEpochs stops the informers of the resources whose epoch is due, and starts them again
// in that epoch. They enqueue what they list. All other informers must prove that what they
// have shown is still in the history of the API server.
func (s *Set) turnEpochs(ctx context.Context) {
	var turning []*watched
	s.mu.Lock()
	for gr, w := range s.watched {
		if w.epoch < s.epochOf(gr) {
			turning = append(turning, w)
			delete(s.watched, gr)
		}
	}
	s.mu.Unlock()
	if len(turning) == 0 {
		return
	}
	s.eachWatched(func(w *watched) {
		for _, i := range w.all() {
			i.proveHistory()
		}
	})
	s.stop(turning)
	for _, w := range turning {
		gr := w.groupResource()
		// What is gone in the history before can exist in this one. The comparison after the
		// first list finds what is gone.
		s.ledger.Forget(func(k event.Key) bool { return k.GroupResource() == gr })
		s.log.Warn("history went back, following it in a new epoch", "resource", gr.String(), "epoch", s.Epoch(gr))
		s.start(ctx, w.resource, w.followed)
	}
}

// epochIsDue reports whether the informers of a resource are about to start again.
func (s *Set) epochIsDue(w *watched) bool { return w.epoch < s.Epoch(w.groupResource()) }

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

// history is what an informer knows of the API server's history, in addition to its indexer.
type history struct {
	doubtful bool      // a watch failed since the last list or the last proof
	until    time.Time // when the last watch ends by itself

	// floor is the version of the last list, "" while that is not known. An object that is not in
	// the list was deleted before this version.
	floor string
	// last is the change with the highest version that a watch showed, nil for none.
	last *change
}

// change is a change of an object as a watch shows it.
type change struct {
	namespace, name, version string
	deleted                  bool // the object was deleted, or left the selection
}

func (i *informer) doubtHistory() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.history.doubtful = true
}

// listed begins a new history with a list at a version. The version is "" if [informer.shown]
// will get it.
func (i *informer) listed(version string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.history = history{floor: version}
}

// opened records that a watch is open, and after how many seconds the API server ends it. The
// history stays doubtful if a watch was told to end after [informer.stopCount] returned stops.
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
		return // a watch.Error has a status
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

// sameHistory proves, before a watch continues at a version, that the API server still has the
// same history. If the last watch did not end by itself, the API server was away, and etcd may
// have been restored from a backup. Once the restored cluster has made as many changes as were
// lost, the API server accepts the old version as one of its own. Then the indexer would show
// lost objects forever.
//
// The proof is that the API server's history has the last change that a watch showed, at its
// version. This proves the history up to that version, and no further even if a bookmark had a
// later one. So the watch continues from there. It cannot continue from an earlier version,
// because it would repeat changes. Without a proof, sameHistory returns the error that makes
// client-go list again, which is always right but costs more.
//
// A watch shows only changes. The API server may serve an unchanged object differently after a
// change of its definition, or after an upgrade. Then the watch cannot continue either.
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

// inHistory reports whether the present history of the API server has a change at its version. It
// returns false also if the API server cannot tell, for example after a compaction.
func (s *Set) inHistory(ctx context.Context, i *informer, c *change) (bool, error) {
	at, err := s.versionAt(ctx, i, c, c.version)
	if err != nil || !c.deleted {
		return at == c.version, unexpected(err)
	}
	if at != "" {
		return false, nil
	}
	number, err := strconv.ParseUint(c.version, 10, 64)
	if err != nil || number == 0 {
		return false, nil
	}
	before, err := s.versionAt(ctx, i, c, strconv.FormatUint(number-1, 10))
	return before != "", unexpected(err)
}

// unexpected returns err, or nil for an error by which the API server says that it cannot tell.
func unexpected(err error) error {
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

// requestTimeout limits a single request, in case the API server does not respond.
const requestTimeout = 10 * time.Second

// Epoch returns how often the history of a resource went back. Only the sequence of the latest
// events on the bus stores it, so it never disagrees with them. An epoch in which nothing was
// published is detected again after a restart.
//
// Each resource has an epoch of its own. A restore of etcd takes every resource back, and
// reconciliation detects that for each. The storage of an aggregated API server may go back
// independently.
func (s *Set) Epoch(gr schema.GroupResource) uint16 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.epochOf(gr)
}

func (s *Set) epochOf(gr schema.GroupResource) uint16 { return max(s.firstEpoch, s.epochs[gr]) }

// RaiseEpoch sets the epoch of a resource, unless it is higher already: the bus has events of
// that epoch, or history went back. If informers of the resource run, the epoch takes effect when
// they have restarted, because they may hold states of the previous history, which would count as
// later states in the new epoch. There is no epoch after [event.LastEpoch].
func (s *Set) RaiseEpoch(gr schema.GroupResource, to uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epochs[gr] = max(s.epochs[gr], min(to, event.LastEpoch))
	s.noteRaised()
}

// RaiseEpochs raises the epochs of all resources, including those that are not known yet.
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

// startDueEpochs restarts the informers of the resources whose epoch was raised. They enqueue
// what they list. All other informers must prove that the API server's history still has what
// they have shown.
func (s *Set) startDueEpochs(ctx context.Context) {
	var due []*watched
	s.mu.Lock()
	for gr, w := range s.watched {
		if w.epoch < s.epochOf(gr) {
			due = append(due, w)
			delete(s.watched, gr)
		}
	}
	s.mu.Unlock()
	if len(due) == 0 {
		return
	}
	s.eachWatched(func(w *watched) {
		for _, i := range w.all() {
			i.proveHistory()
		}
	})
	s.stop(due)
	for _, w := range due {
		gr := w.groupResource()
		// An object that was deleted in the previous history may exist in this one. The
		// comparison after the first list finds the deleted objects.
		s.ledger.Forget(func(k event.Key) bool { return k.GroupResource() == gr })
		s.log.Warn("history went back, following it in a new epoch", "resource", gr.String(), "epoch", s.Epoch(gr))
		s.start(ctx, w.resource, w.followed)
	}
}

// epochIsDue reports whether the informers of a resource are about to restart in a higher epoch.
func (s *Set) epochIsDue(w *watched) bool { return w.epoch < s.Epoch(w.groupResource()) }

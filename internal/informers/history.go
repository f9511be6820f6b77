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

// history records which part of the API server's history an informer has received.
type history struct {
	doubtful bool      // a watch failed since the last list or the last proof
	until    time.Time // when the API server ends the last watch

	// floor is the version of the last list, "" while it is not known. An object that is missing
	// from the list was deleted before this version.
	floor string
	// last is the change with the highest version that a watch showed, nil for none.
	last *change
}

// change is a change of an object that a watch has shown.
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
// receives it later.
func (i *informer) listed(version string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.history = history{floor: version}
}

// opened records that a watch is open, and the number of seconds after which the API server ends
// it. A doubtful history stays doubtful if the watch was told to end after [informer.stopCount]
// returned stops.
func (i *informer) opened(now time.Time, seconds *int64, stops int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.history.doubtful, i.history.until = i.history.doubtful && i.stops != stops, now
	if seconds != nil {
		i.history.until = now.Add(time.Duration(*seconds) * time.Second)
	}
}

// shown records an event of a watch before the indexer receives it.
func (i *informer) shown(e watch.Event) {
	o, err := meta.Accessor(e.Object)
	if err != nil {
		return // the object of a watch.Error is a Status, which has no object metadata
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

// sameHistory proves, before a watch continues at a version, that the API server still has the same
// history. If the last watch did not end at its timeout, the API server may have been unavailable,
// and etcd may have been restored from a backup. Once the restored cluster has made as many changes
// as the restore lost, the API server accepts the old version as one of its own. Without the proof,
// the indexer would then show lost objects forever.
//
// The proof is that the API server's history contains the last change that a watch showed, at the
// version of that change. This proves the history up to that version, and no further, even if a
// bookmark had a later version. So the watch continues from the version of the last change. It
// cannot continue from an earlier version, because it would repeat changes. Without a proof,
// sameHistory returns the error that makes client-go list again. A new list is always correct but
// costs more.
//
// The watch also cannot continue if the API server may serve unchanged objects differently, for
// example after a change of their definition or after an upgrade. A watch shows only changes.
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
	if revision.IsEarlier(version, h.last.version) { // the indexer has not received the change
		return version, nil
	}
	return h.last.version, nil
}

func unproven(i *informer) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("the last known change of %s is not in the API server's history", i.resource.GroupResource()))
}

// inHistory reports whether the API server's current history contains a change at the version of
// that change. It also returns false if the API server cannot tell, for example after a compaction.
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

// unexpected returns err, or nil if err means that the API server cannot read the version.
func unexpected(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || isTooLarge(err) {
		return nil
	}
	return err
}

// isTooLarge reports whether an error of the API server means that a version is in the future.
func isTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// versionAt returns the version that the object of a change had at a version of the cluster. It
// returns "" if no such object existed or was selected.
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

// Epoch returns the number of times that the history of a resource went back. Only the sequence
// attribute of the latest events on the bus stores the epoch, so the epoch never disagrees with
// these events. After a restart, an epoch without events is detected again.
//
// Each resource has its own epoch. A restore of etcd takes every resource back, and reconciliation
// detects that for each resource separately. The storage of an aggregated API server may go back
// independently.
func (s *Set) Epoch(gr schema.GroupResource) uint16 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.epochOf(gr)
}

func (s *Set) epochOf(gr schema.GroupResource) uint16 { return max(s.firstEpoch, s.epochs[gr]) }

// RaiseEpoch sets the epoch of a resource, unless the epoch is already higher. The reason is that
// the bus has events of that epoch, or that history went back. If informers of the resource run,
// the epoch takes effect after they have restarted. They may hold states of the previous history,
// which would otherwise count as later states in the new epoch. No epoch follows [event.LastEpoch].
func (s *Set) RaiseEpoch(gr schema.GroupResource, to uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epochs[gr] = max(s.epochs[gr], min(to, event.LastEpoch))
	s.noteRaised()
}

// RaiseEpochs raises the epochs of all resources, including resources that are not known yet.
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

// startDueEpochs restarts the informers of the resources whose epoch was raised. These informers
// list again and enqueue all objects. All other informers must prove that the API server's history
// still contains the changes that they have shown.
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
		// An object that was deleted in the previous history may exist in the current one. The
		// comparison after the first list finds the deleted objects.
		s.ledger.Forget(func(k event.Key) bool { return k.GroupResource() == gr })
		s.log.Warn("history went back, following it in a new epoch", "resource", gr.String(), "epoch", s.Epoch(gr))
		s.start(ctx, w.resource, w.followed)
	}
}

// epochIsDue reports whether the informers of a resource will soon restart in a higher epoch.
func (s *Set) epochIsDue(w *watched) bool { return w.epoch < s.Epoch(w.groupResource()) }

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
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
)

// history is what an informer knows of the API server's history beside what its
// indexer shows.
type history struct {
	doubtful bool      // a watch has failed since the last list or the last proof
	until    time.Time // when the last watch was to end by itself

	// floor is the version of the last list, "" while that is not known. What it left
	// out had been deleted by then.
	floor string
	// last is the change with the highest version that a watch has shown, nil for none.
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

// listed begins anew: what comes now is of one history. Version is the list's, ""
// where it will be told by [informer.shown].
func (i *informer) listed(version string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.history = history{floor: version}
}

// opened notes a watch, and the seconds after which the API server is to end it.
func (i *informer) opened(now time.Time, seconds *int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.history.doubtful, i.history.until = false, now
	if seconds != nil {
		i.history.until = now.Add(time.Duration(*seconds) * time.Second)
	}
}

// shown notes what a watch shows, on its way to the indexer.
func (i *informer) shown(e watch.Event) {
	o, err := meta.Accessor(e.Object)
	if err != nil {
		return // an error's status
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch e.Type {
	case watch.Bookmark:
		if o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			i.history.floor = o.GetResourceVersion()
		}
	case watch.Added, watch.Modified, watch.Deleted:
		if last := i.history.last; last == nil || earlier(last.version, o.GetResourceVersion()) {
			i.history.last = &change{o.GetNamespace(), o.GetName(), o.GetResourceVersion(), e.Type == watch.Deleted}
		}
	}
}

// sameHistory is asked before a watch goes on. If the last one did not end by
// itself, the API server was away, and it may be that etcd was restored from a
// backup. If by now the restored cluster has made as many changes as were lost,
// the API server takes the watch's old version for one of its own, and the
// indexer would for ever show what was lost.
//
// The proof that history is the same is the last change that a watch has shown: at
// that very version the API server's history has it. It proves history up to that
// version and no further, whatever a bookmark says, so from is the version to go on
// after. Before it there is nothing to go on after: the watch would show once more what
// came and went. Without the proof sameHistory gives the error that has client-go list
// again, which is always right, only more work.
func (s *Set) sameHistory(ctx context.Context, i *informer, version string) (from string, err error) {
	i.mu.Lock()
	h := i.history
	i.mu.Unlock()
	if !h.doubtful && !s.config.Now().Before(h.until) {
		return version, nil
	}
	if h.last == nil || h.floor == "" || earlier(h.last.version, h.floor) {
		return "", unproven(i)
	}
	same, err := s.inHistory(ctx, i, h.last)
	switch {
	case err != nil:
		return "", err
	case !same:
		return "", unproven(i)
	}
	if earlier(version, h.last.version) { // it was on its way to the indexer and did not arrive
		return version, nil
	}
	return h.last.version, nil
}

func unproven(i *informer) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("the last known change of %s is not in the API server's history", i.resource.GroupResource()))
}

// inHistory tells whether a change was made at its version, in the history that the
// API server has now. False is also that nobody can say, as after a compaction.
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

// decisive leaves out the errors by which the API server says that it cannot tell.
func decisive(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || isTooLarge(err) {
		return nil
	}
	return err
}

// isTooLarge tells the answer that a version has not come yet.
func isTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// versionAt is the version that an object of the selection had when the cluster was at
// a version, "" where there was none.
func (s *Set) versionAt(ctx context.Context, i *informer, c *change, version string) (string, error) {
	sc := i.scope
	sc.namespace = c.namespace
	o := s.selected(i.scope, metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	name := fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String()
	if o.FieldSelector != "" {
		name += "," + o.FieldSelector
	}
	o.FieldSelector = name
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := resourceClient(s.config.Dynamic, sc).List(ctx, o)
	if err != nil || len(list.Items) == 0 {
		return "", err
	}
	return list.Items[0].GetResourceVersion(), nil
}

func earlier(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

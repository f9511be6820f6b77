package informers

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kuberelay/kuberelay/internal/event"
)

// history is what an informer knows of the API server's history beside what its
// indexer shows.
type history struct {
	doubtful bool      // a watch has failed since the last list or the last proof
	until    time.Time // when the last watch was to end by itself

	// lastDeleted is the version of the last delete that the watch has reported since
	// the last list, "" before the first.
	lastDeleted string
}

func (i *informer) doubtHistory() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.history.doubtful = true
}

// listed begins anew: what comes now is of one history.
func (i *informer) listed() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.history = history{}
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

func (i *informer) noteDeleted(o *event.Object) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.history.lastDeleted = o.ResourceVersion
}

// sameHistory is asked before a watch goes on. If the last one did not end by
// itself, the API server was away, and it may be that etcd was restored from a
// backup. If by now the restored cluster has made as many changes as were lost,
// the API server takes the watch's old version for one of its own, and the
// indexer would for ever show what was lost.
//
// The proof that history is the same is its last change that we know of: the
// object with the highest version is still in that version. It proves history up to that version only: a bookmark may
// have taken the watch's beyond it, and both histories may have that object. So from
// is the version to go on after, which is the object's then. Without the proof
// sameHistory gives the error that has client-go list again, which is always right,
// only more work.
func (s *Set) sameHistory(ctx context.Context, i *informer, version string) (from string, err error) {
	i.mu.Lock()
	h := i.history
	i.mu.Unlock()
	if !h.doubtful && !s.config.Now().Before(h.until) {
		return version, nil
	}
	latest := i.latest()
	if latest == nil || h.lastDeleted != "" && earlier(latest.ResourceVersion, h.lastDeleted) {
		// The last change was a delete, of which nothing is left to ask for. To go on
		// before it would report the object that was deleted once more.
		return "", unproven(i)
	}
	uid, now, err := s.now(ctx, i, latest)
	if err != nil {
		return "", err
	}
	if uid != string(latest.UID) || now != latest.ResourceVersion {
		return "", unproven(i)
	}
	return latest.ResourceVersion, nil
}

func unproven(i *informer) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("the last known change of %s is not in the API server's history", i.resource.GroupResource()))
}

// now reads an object consistently. Of one that does not exist the UID is empty.
func (s *Set) now(ctx context.Context, i *informer, o *event.Object) (uid, version string, err error) {
	sc := i.scope
	sc.namespace = o.Namespace
	u, err := resourceClient(s.config.Dynamic, sc).Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", "", nil
	case apierrors.IsForbidden(err):
		return "", "", unproven(i)
	case err != nil:
		return "", "", err
	}
	return string(u.GetUID()), u.GetResourceVersion(), nil
}

// latest is the object with the highest version in the indexer, nil if it is empty.
func (i *informer) latest() *event.Object {
	var latest *event.Object
	for _, each := range i.shared.GetStore().List() {
		if o := each.(*event.Object); latest == nil || earlier(latest.ResourceVersion, o.ResourceVersion) {
			latest = o
		}
	}
	return latest
}

func earlier(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

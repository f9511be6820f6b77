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

	// lastDeleted is the last object whose delete the watch has reported since the
	// last list, in the version of that delete and without its body; nil before
	// the first.
	lastDeleted *event.Object
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
	i.history.lastDeleted = &event.Object{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
}

// sameHistory is asked before a watch goes on. If the last one did not end by
// itself, the API server was away, and it may be that etcd was restored from a
// backup. If by now the restored cluster has made as many changes as were lost,
// the API server takes the watch's old version for one of its own, and the
// indexer would for ever show what was lost.
//
// The proof that history is the same is its last change that we know of: the
// object with the highest version is still in that version, and the last one
// deleted is not back. Without the proof sameHistory gives the error that has
// client-go list again, which is always right, only more work.
func (s *Set) sameHistory(ctx context.Context, i *informer) error {
	i.mu.Lock()
	h := i.history
	i.mu.Unlock()
	if !h.doubtful && !s.config.Now().Before(h.until) {
		return nil
	}
	if o := i.latest(); o != nil {
		uid, version, err := s.now(ctx, i, o)
		if err != nil {
			return err
		}
		if uid != string(o.UID) || version != o.ResourceVersion {
			return unproven(i)
		}
	}
	if o := h.lastDeleted; o != nil {
		uid, version, err := s.now(ctx, i, o)
		if err != nil {
			return err
		}
		// What only left the selection exists, but in no earlier version.
		if uid == string(o.UID) && earlier(version, o.ResourceVersion) {
			return unproven(i)
		}
	}
	return nil
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

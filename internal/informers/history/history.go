// Package history decides whether a watch can continue where the last one ended. A watch that
// continues is cheap, and a new list is always correct.
//
// A [History] allows a watch to continue only if the API server's history still contains the changes
// that the last watch showed, and if a list would return unchanged objects in the same form. The
// changes need a proof only if the last watch did not end at its timeout. The package does not list
// or watch. Its caller does, and reports each list and watch to the History.
package history

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/internal/event/revision"
	"github.com/kuberelay/kuberelay/internal/informers/progress"
)

// Config configures a [History]. All fields are required.
type Config struct {
	Resource schema.GroupResource
	Client   dynamic.NamespaceableResourceInterface // reads the objects of the resource
	Selected metav1.ListOptions                     // the label and field selectors of the informer

	Server *Server // the API server, shared by all informers of the cluster
	// MayBeRedefined reports whether the resource's CustomResourceDefinition or APIService might have
	// changed without a call of [History.ListAgain].
	MayBeRedefined func() bool

	Now func() time.Time
}

// History records which part of the API server's history an informer has received. Make one with
// [New].
type History struct {
	config Config

	// last is the change with the highest version that a watch has shown since the last list, or nil if
	// there is none.
	last atomic.Pointer[change]

	mu      sync.Mutex
	shown   shown
	relist  bool               // the next watch must begin with a list
	built   string             // the version of the API server before the last list
	unwatch context.CancelFunc // ends the last watch
	stops   int                // number of times that a watch was told to end
}

// New returns the History of an informer that has received nothing.
func New(c Config) *History { return &History{config: c, unwatch: func() {}} }

// shown is the part of the history that the last list and the watches since then have shown.
type shown struct {
	doubtful bool      // a watch failed since the last list or the last proof
	until    time.Time // when the API server ends the last watch

	// floor is the version of the last list, "" while it is not known. An object that is missing
	// from the list was deleted before this version.
	floor string
}

// change is a change of an object that a watch has shown.
type change struct {
	namespace, name, version string
	deleted                  bool // the object was deleted, or left the selection
}

// Doubt records that a list or a watch failed, so that the next watch must prove the history.
func (h *History) Doubt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shown.doubtful = true
}

// Listed begins a new history with a list at a version. The version is "" if [History.Shown]
// receives it later.
func (h *History) Listed(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shown = shown{floor: version}
	h.last.Store(nil)
}

// Opened records an open watch. asked is the time of its request, seconds is its timeout, and stops is the
// result of [History.Stops] before the request. If a watch was told to end since then, a doubtful history
// stays doubtful.
func (h *History) Opened(asked time.Time, seconds *int64, stops int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shown.doubtful, h.shown.until = h.shown.doubtful && h.stops != stops, asked
	if seconds != nil { // the API server counts from the request, and its response can be late
		h.shown.until = asked.Add(time.Duration(*seconds) * time.Second)
	}
}

// Shown records an event of a watch before the indexer receives it.
func (h *History) Shown(e watch.Event) {
	o, err := meta.Accessor(e.Object)
	if err != nil {
		return // the object of a watch.Error is a Status, which has no object metadata
	}
	switch e.Type {
	case watch.Bookmark:
		if progress.IsListEnd(e) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.shown.floor = o.GetResourceVersion()
		}
	case watch.Added, watch.Modified, watch.Deleted:
		if last := h.last.Load(); last == nil || revision.IsEarlier(last.version, o.GetResourceVersion()) {
			h.last.Store(&change{o.GetNamespace(), o.GetName(), o.GetResourceVersion(), e.Type == watch.Deleted})
		}
	}
}

// Continue returns the version from which the next watch may continue. version is the version that client-go
// requests. Unless the last watch ended at its timeout, Continue first proves that the API server's history
// was not rolled back: etcd might have been restored from a backup while the API server was unavailable. Once
// the restored cluster has made as many changes as the restore lost, the API server accepts the old version
// as one of its own. Without the proof, the indexer would then show lost objects forever.
//
// The proof is that the API server's history contains the last change that a watch showed, at the
// version of that change. This proves only the history up to that version. A later bookmark proves
// nothing, so the watch continues from the version of the last change, or from version if that is
// earlier. Without a proof, Continue returns the error that makes client-go list again. A new list
// is always correct but costs more.
//
// The watch also cannot continue if the API server might serve unchanged objects differently, for
// example after a change of their CustomResourceDefinition or after an upgrade, because a watch
// shows only changes.
func (h *History) Continue(ctx context.Context, version string) (from string, err error) {
	h.mu.Lock()
	is := h.shown
	h.mu.Unlock()
	last := h.last.Load()
	ended := !is.doubtful && !h.config.Now().Before(is.until)
	switch same, err := h.sameContent(ctx, ended); {
	case err != nil:
		return "", err
	case !same:
		return "", h.unproven()
	case ended:
		return version, nil
	}
	if last == nil || is.floor == "" || revision.IsEarlier(last.version, is.floor) {
		return "", h.unproven()
	}
	same, err := h.contains(ctx, last)
	switch {
	case err != nil:
		return "", err
	case !same:
		return "", h.unproven()
	}
	if revision.IsEarlier(version, last.version) { // the indexer has not received the change
		return version, nil
	}
	return last.version, nil
}

func (h *History) unproven() error {
	return apierrors.NewResourceExpired(fmt.Sprintf("the last known change of %s is not in the API server's history", h.config.Resource))
}

// contains reports whether the API server's current history contains a change at the version of
// that change. It also returns false if the API server cannot tell, for example after a compaction.
func (h *History) contains(ctx context.Context, c *change) (bool, error) {
	at, err := h.versionAt(ctx, c, c.version)
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
	before, err := h.versionAt(ctx, c, strconv.FormatUint(number-1, 10))
	return before != "", unexpected(err)
}

// unexpected returns err, or nil if err means that the API server cannot read the version.
func unexpected(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return nil
	}
	return err
}

// versionAt returns the version that the object of a change had at a version of the cluster. It
// returns "" if no such object existed or was selected.
func (h *History) versionAt(ctx context.Context, c *change, version string) (string, error) {
	o := h.config.Selected
	o.ResourceVersion, o.ResourceVersionMatch = version, metav1.ResourceVersionMatchExact
	name := fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String()
	if o.FieldSelector != "" {
		name += "," + o.FieldSelector
	}
	o.FieldSelector = name
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := h.config.Client.Namespace(c.namespace).List(ctx, o)
	if err != nil || len(list.Items) == 0 {
		return "", err
	}
	return list.Items[0].GetResourceVersion(), nil
}

// requestTimeout limits a single request, in case the API server does not respond.
const requestTimeout = 10 * time.Second

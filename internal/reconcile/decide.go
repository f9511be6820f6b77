package reconcile

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/revision"
)

// ResourceView is the informers' view of a resource at one moment.
type ResourceView struct {
	Watched  bool
	Resource event.Resource // in the watched version
	Epoch    uint16         // of the informers

	Selected bool // by the last discovery, even while its informers are restarting or about to start

	Catalog *discovery.Catalog // the resources that the API server serves; nil before the first discovery

	ReferencesKnown bool // every object that can refer to others is listed
	HasReferences   bool // objects of the resource refer to others
}

// ObjectView is the informers' view of a key at one moment.
type ObjectView struct {
	Covered bool          // an informer covers the key
	Denied  bool          // access is denied in the namespace, and no informer has listed it
	Synced  bool          // the first list of the informer is complete
	Version string        // the informer's version before Live was read; Live includes every change up to it
	Live    *event.Object // the object in the informer, nil for none

	// Filtered means that a label or field selector applies, so the informer might not show every
	// existing object.
	Filtered bool

	Selected           bool // selected by namespace and by reference; valid only if both are known
	NamespacesKnown    bool // the selected namespaces are known
	NamespaceExists    bool // false only if the watch of namespaces does not show the namespace
	UnselectedByLabels bool // only the namespace's labels, as the watch shows them, prevent the selection
	ReferencesKnown    bool // every object that can refer to this one is listed

	// PublishDeselected means that an object that leaves the selection gets a deselected event.
	PublishDeselected bool

	Outlived event.Outlived // see [event.View.Outlived]
}

// shows reports whether the informer shows a UID.
func (v ObjectView) shows(uid string) bool {
	return v.Synced && v.Live != nil && string(v.Live.UID) == uid
}

// hasSeen reports whether the informer has seen a version.
func (v ObjectView) hasSeen(version string) bool {
	return revision.IsUpTo(version, v.Version)
}

// isOutlived reports whether a consistent read has already confirmed the informer's state. The
// forwarder can then correct the delete or the foreign event on the bus. The confirmation is valid
// for only one position on the bus.
func (v ObjectView) isOutlived(a event.Acked, epoch uint16) bool {
	switch {
	case a.Position == 0 || v.Outlived.Position != a.Position:
		return false
	case v.Live != nil && revision.IsUpTo(v.Live.ResourceVersion, v.Outlived.AbsentAt):
		return false // the informer still shows an object that the read did not find
	case a.Foreign:
		return !a.Live() || v.shows(a.UID) // otherwise a delete is due first
	}
	return v.Live != nil && isDeletedOnBus(v.Live, a, epoch)
}

// decision is the result of comparing a key.
type decision int

const (
	agree         decision = iota // the bus and the informer agree
	wait                          // the informers have not synced, or are behind
	enqueue                       // the bus might lack the informer's state
	raiseEpoch                    // the bus is in a later epoch
	readObject                    // a consistent read of the object decides
	readNamespace                 // a consistent read of the object's namespace decides
	listNamespace                 // a list of the namespace decides whether the object is deselected or gone
	inferDelete                   // the object is gone
	deselect                      // the object is no longer selected; publish a deselected event
	leaveOnBus                    // the object is no longer selected, and stays on the bus
	markOutlived                  // the informer's state is confirmed, although the bus has a delete or a foreign event
	restored                      // the resource's history was rolled back
)

// decide compares the bus and the informers for one key.
func decide(r event.Resource, epoch uint16, of pair, v ObjectView) decision {
	a, namespace := of.acked, of.key.Namespace
	switch {
	case a.Epoch > epoch:
		return raiseEpoch
	case (namespace != "") != r.Namespaced && a.Live():
		return inferDelete // the resource had another scope when the event was published
	case (namespace != "") != r.Namespaced:
		return agree
	case !v.NamespacesKnown && namespace != "":
		return wait
	case !v.NamespaceExists && a.Live():
		return readNamespace
	case !v.Selected && a.Live():
		return v.confirmLabels(decideDeselected(a, v))
	case v.Denied && (a.Live() || a.Foreign && v.Outlived.Position != a.Position):
		return readNamespace // if the namespace is gone, so are the Roles that granted access
	case !v.Covered && a.Live():
		return wait // the informer is starting, or access is denied
	case a.Foreign && !v.Selected && v.ReferencesKnown && v.Outlived.Position != a.Position:
		return v.confirmLabels(markOutlived) // the object is not selected, so the foreign event is wrong
	case !v.Covered, !v.Selected:
		return agree
	case !v.Synced:
		return wait
	case v.isOutlived(a, epoch):
		return enqueue
	case a.Foreign:
		return readObject
	case differs(v.Live, a, epoch):
		return readObject
	case v.Live != nil && isOutOfStep(v.Live, a):
		return enqueue
	}
	return agree
}

// decideDeselected decides about an object that the bus shows as existing but that is not selected.
func decideDeselected(a event.Acked, v ObjectView) decision {
	switch {
	case !v.ReferencesKnown:
		return wait
	case !v.PublishDeselected:
		return leaveOnBus
	case v.shows(a.UID):
		return deselect
	}
	return listNamespace
}

// differs reports whether the informer contradicts the bus: the informer lacks the object that the
// bus shows, or has an earlier version than the bus, or has the version of a delete on the bus.
func differs(live *event.Object, a event.Acked, epoch uint16) bool {
	if a.Live() && (live == nil || string(live.UID) != a.UID) {
		return true
	}
	return live != nil && (isBehind(live.ResourceVersion, a, epoch) || isDeletedOnBus(live, a, epoch))
}

// isDeletedOnBus reports whether the bus has a delete at the version of the informer's object, or a
// removal of the object's UID at an unknown version.
func isDeletedOnBus(live *event.Object, a event.Acked, epoch uint16) bool {
	isBack := a.Deselected && a.UID == string(live.UID) // the object returned to the selection, so no read is needed
	isSame := a.Deleted && !isBack && a.Epoch == epoch && a.ResourceVersion == live.ResourceVersion
	return !live.Unselected && (isSame || a.IsUnversioned(string(live.UID)))
}

// isOutOfStep reports whether the bus might lack the state in an informer.
func isOutOfStep(live *event.Object, a event.Acked) bool {
	switch {
	case live.Unselected, !a.Live():
		return a.Live() != !live.Unselected
	case live.Digest != a.Digest:
		return true
	}
	return live.Digest.None() && live.ResourceVersion != a.ResourceVersion
}

// isBehind reports whether a version is earlier than the version on the bus. It returns false if the
// version belongs to a later epoch than the bus. In the last epoch, it always returns false.
func isBehind(version string, a event.Acked, epoch uint16) bool {
	if a.Epoch < epoch || epoch == event.LastEpoch {
		return false
	}
	return revision.IsEarlier(version, a.ResourceVersion)
}

// finding is the result of a consistent read of an object that is on the bus.
type finding int

const (
	isUnknown finding = iota // the object was not read
	isThere                  // the read agrees with the bus, or the informer will show the difference
	isGone                   // the object does not exist, or its name belongs to another UID
	isOlder                  // the object exists at an earlier version than the bus has
	isUnseen                 // the object is gone, but the watch has not reached the version on the bus yet
)

// readResult is the finding of a read, with the UID and version of the object that exists, if any.
type readResult struct {
	finding
	uid, version string
	listed       string // the version of a list that confirms the result; "" for none
}

// isAbsent reports whether the read found no object.
func (f readResult) isAbsent() bool {
	return f.uid == "" && (f.finding == isThere || f.finding == isGone)
}

// absentAt returns a version at which no object existed. It returns "" if an object exists, or if
// no list confirmed the read.
func (f readResult) absentAt() string {
	if f.isAbsent() {
		return f.listed
	}
	return ""
}

// isOf reports whether the read found exactly this state.
func (f readResult) isOf(o *event.Object) bool {
	return f.uid == string(o.UID) && f.version == o.ResourceVersion
}

// confirms reports whether an informer shows the state that the read found, or a later state.
func (f readResult) confirms(v ObjectView) bool {
	switch {
	case f.uid == "":
		return v.Live == nil
	case v.Live == nil:
		return v.Filtered && v.hasSeen(f.version)
	}
	return string(v.Live.UID) == f.uid && !revision.IsEarlier(v.Live.ResourceVersion, f.version)
}

// classify returns the finding of a consistent read.
func classify(o *unstructured.Unstructured, err error, a event.Acked, epoch uint16) (readResult, error) {
	switch {
	case discovery.IsObjectNotFound(err) && !a.Live():
		return readResult{finding: isThere}, nil
	case discovery.IsObjectNotFound(err):
		return readResult{finding: isGone}, nil
	case err != nil:
		return readResult{}, err
	case a.Live() && string(o.GetUID()) != a.UID:
		return readResult{finding: isGone, uid: string(o.GetUID()), version: o.GetResourceVersion()}, nil
	case isBehind(o.GetResourceVersion(), a, epoch):
		return readResult{finding: isOlder}, nil
	}
	return readResult{finding: isThere, uid: string(o.GetUID()), version: o.GetResourceVersion()}, nil
}

// conclude decides about a key after the read. v is a view that was taken after the read.
func (f readResult) conclude(a event.Acked, v ObjectView, epoch uint16, publishDeselected bool) decision {
	switch {
	case f.finding == isUnknown:
		return agree
	case f.finding == isOlder:
		return restored
	case f.finding == isUnseen, !v.Covered, !v.Synced: // the informer was replaced
		return wait
	case f.finding == isGone && v.shows(a.UID):
		return wait // the watch will show the delete, with the last state
	case f.finding == isGone && a.Foreign && !f.confirms(v):
		return wait // the event might belong to an object that the watch will show
	case f.finding == isGone:
		return inferDelete
	case a.Foreign && (v.Live != nil || !a.Live()) && f.confirms(v):
		return markOutlived
	case v.Live != nil && isDeletedOnBus(v.Live, a, epoch) && f.isOf(v.Live):
		return markOutlived
	case v.Live != nil, !v.Filtered, publishDeselected && !v.hasSeen(f.version):
		return wait
	case !publishDeselected:
		return leaveOnBus
	}
	return deselect // the labels or fields of the object do not match
}

// decideLeaving decides about an object that is no longer selected. uids (the UIDs of the objects
// by name) and err are the result of a list of its namespace. If the list is forbidden, the object
// counts as deselected, which is certain, and not as gone, which is unproven.
func decideLeaving(of pair, uids map[string]string, err error) (decision, error) {
	switch {
	case err != nil && !apierrors.IsForbidden(err):
		return agree, fmt.Errorf("list %s in namespace %s: %w", of.key.GroupResource(), of.key.Namespace, err)
	case err != nil, uids[of.key.Name] == of.acked.UID:
		return deselect, nil
	}
	return inferDelete, nil
}

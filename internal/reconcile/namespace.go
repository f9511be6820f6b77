package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
)

// confirmLabels replaces a decision that publishes an event because of the namespace's labels with
// readNamespace. Another writer can see labels that this forwarder's watch has not shown yet.
func (v ObjectView) confirmLabels(d decision) decision {
	if v.UnselectedByLabels && d != wait && d != leaveOnBus {
		return readNamespace
	}
	return d
}

// namespaceState is the result of a consistent read of a namespace.
type namespaceState int

const (
	namespaceGone       namespaceState = iota // the API server removes a namespace only when it is empty
	namespaceSelected                         // its labels match
	namespaceUnselected                       // its labels do not match
)

// errNamespacesBehind makes the caller compare again later.
var errNamespacesBehind = errors.New("the watch of namespaces is behind")

// isBehind reports whether a read found a namespace that the watch of namespaces does not show, or
// shows with labels that do not match. No notification follows if the namespace changes back before the
// watch shows it. If the watch is behind in the other direction, the informers request a comparison when
// the namespace is no longer selected.
func (v ObjectView) isBehind(is namespaceState) bool {
	return is != namespaceGone && !v.NamespaceExists || is == namespaceSelected && v.UnselectedByLabels
}

// decideInNamespace decides about an object after a consistent read of its namespace.
func decideInNamespace(r event.Resource, epoch uint16, of pair, v ObjectView, is namespaceState) decision {
	switch {
	case is == namespaceGone && (v.shows(of.acked.UID) || of.acked.Foreign && v.Live != nil):
		return wait // the watch will show the delete, with the last state
	case is == namespaceGone && of.acked.Live():
		return inferDelete
	case is == namespaceGone && of.acked.Foreign:
		return markOutlived // no object exists in the namespace, so the foreign event is wrong
	}
	v.UnselectedByLabels, v.Denied = false, false
	return decide(r, epoch, of, v)
}

// readNamespaces reads the namespaces that the watch of namespaces does not show, those whose
// labels do not match, and those in which access is denied. It reads a namespace instead of its
// objects, because a Role that granted access to the objects might have been removed with the
// namespace.
func (p *pass) readNamespaces(ctx context.Context) (failed error) {
	for _, namespace := range slices.Sorted(maps.Keys(p.namespaces)) {
		var unread error
		read := p.readNamespace(ctx, namespace)
		is, err := read.namespaceState, read.err
		for _, of := range p.namespaces[namespace] {
			switch v := p.Informers.DescribeObject(of.key); {
			case err == nil && v.isBehind(is):
				p.apply(wait, of, &p.found)
				unread = errNamespacesBehind
			case err == nil:
				of.unselected, of.absentAt = is == namespaceUnselected, read.absentAt
				p.file(decideInNamespace(p.resource, p.epoch, of, v, is), of)
			case apierrors.IsForbidden(err) && v.Denied: // the permission is optional if KUBERELAY_NAMESPACES names the namespaces
				p.apply(wait, of, &p.found)
			default:
				unread = fmt.Errorf("read namespace %s: %w", namespace, err)
			}
		}
		failed = errors.Join(failed, unread)
	}
	return failed
}

// isRemoved reports whether a namespace does not exist. If so, absentAt is a version at which it did not
// exist. A Role that granted access to the objects of the namespace is then gone too.
func (p *pass) isRemoved(ctx context.Context, namespace string) (absentAt string, is bool) {
	if namespace == "" {
		return "", false
	}
	read := p.readNamespace(ctx, namespace)
	return read.absentAt, read.err == nil && read.namespaceState == namespaceGone
}

// namespaceRead is the result of a read of a namespace.
type namespaceRead struct {
	namespaceState
	absentAt string // a version at which the namespace did not exist; "" if it exists or the read failed
	err      error
}

// readNamespace reads a namespace once in each pass.
func (p *pass) readNamespace(ctx context.Context, namespace string) namespaceRead {
	known, ok := p.read.Load(namespace)
	if !ok {
		known, _ = p.read.LoadOrStore(namespace, p.listNamespace(ctx, namespace))
	}
	return known.(namespaceRead)
}

// listNamespace lists the namespace by its name, because a forwarder that watches namespaces has the
// permission to list them, but not to get them.
func (p *pass) listNamespace(ctx context.Context, namespace string) namespaceRead {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := p.Reads.Resource(discovery.NamespaceResource).List(ctx, metav1.ListOptions{FieldSelector: named(namespace)})
	switch {
	case err != nil:
		return namespaceRead{err: err}
	case len(list.Items) == 0:
		return namespaceRead{namespaceState: namespaceGone, absentAt: list.GetResourceVersion()}
	case p.Informers.SelectsNamespace(namespace, list.Items[0].GetLabels()):
		return namespaceRead{namespaceState: namespaceSelected}
	}
	return namespaceRead{namespaceState: namespaceUnselected}
}

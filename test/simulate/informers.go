package simulate

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/forward"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/reconcile"
)

// The rest of this file models internal/informers: the handlers, the view of a key, and the
// epochs. The state that the forwarder keeps for a key is the product's own internal/ledger.

var (
	_ forward.Informers   = (*process)(nil)
	_ reconcile.Informers = (*process)(nil)
)

func (p *process) onAdd(object int, o *event.Object, initial bool) {
	k := keyOf(object)
	delete(p.reflector.gone, string(o.UID)) // the object is back
	if o.Unselected || !p.selects(k) {
		if !o.Unselected {
			p.ledger.ForgetObject(k, string(o.UID))
		}
		p.enqueue(k)
		return
	}
	if initial && !p.joined {
		p.ledger.ForgetObject(k, string(o.UID))
		return
	}
	cause := event.CauseWatch
	if initial {
		cause = event.CauseReconcile
	}
	p.ledger.Observe(k, nil, o, cause, false, p.now())
	p.enqueue(k)
}

func (p *process) onUpdate(object int, old, o *event.Object) {
	k := keyOf(object)
	if old.UID != o.UID {
		p.reflector.gone[string(old.UID)] = kept(old)
		p.ledger.AddTombstone(k, event.Tombstone{UID: string(old.UID), Observed: p.now(), Cause: event.CauseWatch, Object: kept(old)})
	}
	switch {
	case old.UID == o.UID && old.ResourceVersion == o.ResourceVersion: // a list returned the known state
	case !o.Unselected && !p.selects(k):
		p.ledger.ForgetObject(k, string(o.UID))
	case !o.Unselected:
		var before *event.Object
		if old.UID == o.UID && p.joined {
			before = kept(old)
		}
		p.ledger.Observe(k, before, o, event.CauseWatch, false, p.now())
	case !old.Unselected && old.UID == o.UID:
		p.ledger.AddTombstone(k, event.Tombstone{UID: string(o.UID), Deselected: true, Observed: p.now(), Cause: event.CauseWatch, Object: kept(old)})
	}
	p.enqueue(k)
}

func (p *process) onDelete(object int, o *event.Object) {
	k := keyOf(object)
	p.reflector.gone[string(o.UID)] = kept(o)
	p.ledger.AddTombstone(k, event.Tombstone{UID: string(o.UID), Observed: p.now(), Cause: event.CauseWatch, Object: kept(o)})
	p.enqueue(k)
}

func kept(o *event.Object) *event.Object {
	if o.Body.None() {
		return nil
	}
	return o
}

// Lookup implements [forward.Informers].
func (p *process) Lookup(k event.Key) event.View {
	defer p.overtake()
	v := event.View{Cause: event.CauseReconcile, Resource: resource, Epoch: p.epoch, Version: versionText(p.reflector.applied), Live: p.reflector.indexer[objectOf(k)]}
	if v.Version == "" && v.Live != nil {
		v.Version = v.Live.ResourceVersion
	}
	p.ledger.Describe(k, &v)
	p.hideDeselections(k, &v)
	switch {
	case v.Live == nil:
	case !v.Live.Unselected && !p.selects(k):
		p.deselect(&v)
	case v.Live.Unselected:
		uid := string(v.Live.UID)
		v.Live = nil
		if _, gone := v.Tombstone(uid); !gone {
			v.Tombstones = append(v.Tombstones, event.Tombstone{UID: uid, Deselected: true, Observed: p.now(), Cause: v.Cause})
		}
	}
	if v.Live != nil {
		v.Tombstones = slices.DeleteFunc(v.Tombstones, func(t event.Tombstone) bool { return t.UID == string(v.Live.UID) })
	}
	if v.Observed.IsZero() {
		v.Observed = p.now()
	}
	return v
}

// Interest implements [forward.Informers].
func (p *process) Interest(k event.Key) ledger.Interest {
	defer p.overtake()
	o := p.reflector.indexer[objectOf(k)]
	return ledger.Interest{Selected: p.selects(k), Published: o == nil || !o.Unselected, Reports: p.ledger.Reports()}
}

// Shown implements [forward.Informers].
func (p *process) Shown(k event.Key) string {
	defer p.overtake()
	return p.shownUID(k, p.reflector.indexer[objectOf(k)])
}

// maxRace is the maximum number of questions that one decision asks the informers.
const maxRace = 3

// overtake is called when the informers have answered a question of a worker or of the resolver. At the
// question with the number race, the informers report everything that they have received before the answer is
// used.
func (p *process) overtake() {
	if p.race == 0 {
		return
	}
	if p.race--; p.race > 0 {
		return
	}
	p.world.tell("  the informers go on")
	for len(p.reflector.queue) > 0 {
		p.index()
	}
	for len(p.reflector.notes) > 0 {
		p.notify()
	}
}

// shownUID returns the UID of an object in an indexer, or "" if there is none or it isn't selected.
func (p *process) shownUID(k event.Key, o *event.Object) string {
	if o == nil || o.Unselected || !p.selects(k) {
		return ""
	}
	return string(o.UID)
}

// Settled implements [forward.Informers].
func (p *process) Settled(event.Key) {}

// Unreported implements [forward.Informers].
func (p *process) Unreported(event.Key) { p.reselect() }

// Unpublishable implements [forward.Informers].
func (p *process) Unpublishable(k event.Key) { p.ledger.MarkUnpublishable(k) }

// DescribeResource implements [reconcile.Informers].
func (p *process) DescribeResource(schema.GroupResource) reconcile.ResourceView {
	return reconcile.ResourceView{Watched: true, Resource: resource, Epoch: p.epoch, ReferencesKnown: true}
}

// DescribeObject implements [reconcile.Informers].
func (p *process) DescribeObject(k event.Key) reconcile.ObjectView {
	view, selected := p.spaces.view, p.selects(k)
	return reconcile.ObjectView{
		Covered: p.spaces.isCovered, Denied: p.isDenied(), Synced: p.reflector.synced(), Version: versionText(p.reflector.applied), Live: p.reflector.indexer[objectOf(k)],
		Filtered: p.config.selection == byLabel,
		Selected: selected, PublishDeselected: !selected, ReferencesKnown: true,
		NamespacesKnown: view.Ready() == nil, NamespaceExists: view.Exists(namespace), UnselectedByLabels: view.UnselectedByLabels(namespace),
		Outlived: p.ledger.Outlived(k),
	}
}

// RenewMarkers implements [reconcile.Informers].
func (p *process) RenewMarkers(context.Context, schema.GroupResource) error { return nil }

// AddTombstone implements [reconcile.Informers].
func (p *process) AddTombstone(k event.Key, t event.Tombstone) {
	p.world.tell("  forwarder %d finds that %s of %s is gone (deselected: %t)", p.slot+1, t.UID, k.Name, t.Deselected)
	p.ledger.AddTombstone(k, t)
	p.enqueue(k)
}

// ForgetOthers implements [reconcile.Informers].
func (p *process) ForgetOthers(k event.Key) { p.ledger.ForgetOthers(k) }

// MarkOutlived implements [reconcile.Informers].
func (p *process) MarkOutlived(k event.Key, is event.Outlived) {
	p.world.tell("  forwarder %d finds that %s outlived position %d", p.slot+1, k.Name, is.Position)
	p.ledger.MarkOutlived(k, is, p.now())
	p.enqueue(k)
}

// EnqueueLowPriority implements [reconcile.Informers].
func (p *process) EnqueueLowPriority(k event.Key) { p.enqueue(k) }

// RaiseEpoch implements [reconcile.Informers].
func (p *process) RaiseEpoch(_ schema.GroupResource, to uint16) { p.raised = max(p.raised, to) }

// ForgetReferences implements [reconcile.Informers].
func (p *process) ForgetReferences(schema.GroupResource) {}

func (p *process) epochIsDue() bool { return p.epoch < p.raised }

// turnEpoch begins the raised epoch with new informers.
func (p *process) turnEpoch() {
	p.replaceReflector()
	if p.config.scope != everyNamespace {
		p.spaces.isCovered, p.spaces.aligned, p.spaces.realign = false, false, true
	}
	p.reselect()
	p.ledger.Forget(func(event.Key) bool { return true })
	p.epoch = p.raised
	p.world.tell("  it is epoch %d", p.epoch)
	p.join()
}

package simulate

import (
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/revision"
)

// checkReturn checks that a forwarder doesn't remove an object in a version before its return to the selection,
// which its informer has shown. latest is the last selected state that the informer had shown before the decision.
func (o *oracle) checkReturn(object int, e published, latest *event.Object) {
	if latest == nil || string(latest.UID) != e.UID || o.restored || !revision.IsEarlier(e.ResourceVersion, latest.ResourceVersion) {
		return
	}
	_, wasAbsent := o.absent[e.uid()]
	wasUnlabeled := !revision.IsEarlier(versionText(o.unlabeled[e.uid()]), latest.ResourceVersion) && o.unlabeled[e.uid()] > 0
	if !wasAbsent && !wasUnlabeled && !o.outOfScope[e.uid()] {
		o.world.violate(ruleDelete, "%s: uid %s is removed at %d in version %s, and the forwarder knows that version %s is selected", objectNames[object], e.UID, e.Position, e.ResourceVersion, latest.ResourceVersion)
	}
}

// ruleLast is the promise of a removal's data.
const ruleLast = "a delete has the last state that the watch showed"

// checkLastState checks that a deleted event has the last state that the watch showed before the decision.
func (o *oracle) checkLastState(object int, e published, f *flight) {
	last := f.gone[e.UID]
	if last == nil || e.Deselected || o.world.writers > 1 || o.writer[object] != f.term || o.lossy || o.restored || !revision.IsEarlier(e.ResourceVersion, last.ResourceVersion) {
		return
	}
	o.world.violate(ruleLast, "%s: uid %s is deleted at %d in version %s, and the forwarder knows version %s", objectNames[object], e.UID, e.Position, e.ResourceVersion, last.ResourceVersion)
}

package resolve

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/revision"
	"github.com/kuberelay/kuberelay/internal/ledger"
)

// agrees reports whether the bus has the state of a resource that the informers show, except for
// unacknowledged changes. If it does, agrees returns what the handler must report first, and otherwise nil.
func (r *Resolver) agrees(gr schema.GroupResource) awaited {
	agrees, until := true, awaited{}
	r.Informers.Clean(gr, func(k event.Key) bool {
		agrees = r.hasState(k, until)
		return agrees
	})
	for k, acked := range r.Checkpoint.Entries(gr) {
		if !agrees {
			return nil
		}
		agrees = !acked.Live() || !r.Informers.IsClean(k) || r.hasState(k, until)
	}
	if !agrees {
		return nil
	}
	return until
}

// hasState reports whether the bus has the state of a key. An object that only an earlier configuration
// selected might stay on the bus. For such an object, hasState adds the version of the view to until.
func (r *Resolver) hasState(k event.Key, until awaited) bool {
	view := r.Informers.Lookup(k)
	change, reason := ledger.Decide(view)
	switch {
	case view.Acked.Foreign || change != nil:
		return false
	case reason == ledger.ReasonAwait: // gone or not selected; only a comparison finds out which
		until.add(k, view.Version)
		return r.isCompared(k.GroupResource())
	}
	return reason == ledger.ReasonUnchanged || reason == ledger.ReasonGone
}

// awaited contains, by namespace, the latest version of the indexer at which agrees did not find an object that
// the bus shows. A pending point counts only when the handler has reported these versions.
type awaited map[string]seen

type seen struct {
	key     event.Key
	version string
}

func (a awaited) add(k event.Key, version string) {
	if is, ok := a[k.Namespace]; !ok || revision.IsEarlier(is.version, version) {
		a[k.Namespace] = seen{k, version}
	}
}

// isReported reports whether the informers have reported every change that agrees has seen. An object that
// the indexer lacks might have been deleted after the comparison, so the ledger might lack its delete until
// then. The pending point then waits for the changes that have been reported meanwhile.
func (r *Resolver) isReported(of *resolution) bool {
	if of.awaited == nil {
		return true
	}
	for _, is := range of.awaited {
		reported := r.Informers.Reported(is.key)
		if reported == "" && is.version != "" || revision.IsEarlier(reported, is.version) {
			return false
		}
	}
	of.awaited = nil
	*of.pending = r.Informers.Marked(*of.pending)
	return true
}

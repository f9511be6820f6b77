package ledger

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// boundEpochs marks an event as unordered if its epoch is so far above the known epoch of the
// resource that restores cannot explain it. Anyone who can write to the bus can publish an event
// with any epoch, and a forged [event.LastEpoch] would leave the versions of the resource without
// an order. boundEpochs passes each event that it marks to refused.
func (t *table) boundEpochs(gr schema.GroupResource, known uint16, refused func(event.Key, event.Acked, error)) {
	if t.highest <= max(known, event.MaxEpochJump) {
		return
	}
	top := t.explained(known)
	if t.highest <= top {
		return
	}
	bound := map[name]event.Acked{}
	for n, r := range t.records {
		if epoch, _, _ := r.counted(); epoch > top {
			bound[n] = r.acked()
		}
	}
	for n, a := range bound {
		t.put(n, a.Unordered())
		refused(n.key(gr), a, event.Invalid(event.InvalidEpoch, fmt.Errorf("epoch %d of %s is more than %d above the epoch %d", a.Epoch, gr, event.MaxEpochJump, top)))
	}
}

// explained returns the highest epoch that restores can explain. It starts from the known epoch or
// from the median epoch of the objects, whichever is higher. In the first load of a term, no epoch
// is known, and a few forged events do not move the median.
func (t *table) explained(known uint16) uint16 {
	top := max(known, t.medianEpoch())
	for _, epoch := range slices.Sorted(maps.Keys(t.epochs)) {
		if epoch > top && epoch-top <= event.MaxEpochJump {
			top = epoch
		}
	}
	return top
}

// medianEpoch returns the lower median epoch of all events. Messages that are not events do not
// count.
func (t *table) medianEpoch() uint16 {
	events := t.acked
	counts := maps.Clone(t.epochs)
	for _, r := range t.records {
		if r.packed == (packed{}) && r.acked().UID == "" {
			counts[r.acked().Epoch]--
			events--
		}
	}
	seen := 0
	for _, epoch := range slices.Sorted(maps.Keys(counts)) {
		if seen += counts[epoch]; 2*seen >= events {
			return epoch
		}
	}
	return 0
}

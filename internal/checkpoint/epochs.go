package checkpoint

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

func (c *Checkpoint) boundEpochs(loaded *tables) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	loaded.boundEpochs(c.entries, func(k event.Key, a event.Acked, err error) {
		if c.Refused != nil {
			c.Refused(k, a, err)
		}
	})
}

// boundEpochs makes the entries whose epoch no restore explains unordered. Anyone who can
// write to the bus can publish an event of any epoch, and a resource that reaches the last
// epoch has no order any more. It reports each such entry to refused.
func (t *tables) boundEpochs(known *tables, refused func(event.Key, event.Acked, error)) {
	for gr, table := range t.byResource {
		var before uint16
		if k := known.byResource[gr]; k != nil {
			before = k.highest
		}
		table.boundEpochs(gr, before, refused)
	}
}

func (t *table) boundEpochs(gr schema.GroupResource, known uint16, refused func(event.Key, event.Acked, error)) {
	if t.highest <= max(known, event.MaxEpochJump) {
		return
	}
	top := t.explained(known)
	if t.highest <= top {
		return
	}
	bound := map[name]event.Acked{}
	for n, e := range t.packed {
		if e.state.epoch() > top {
			bound[n] = e.unpack()
		}
	}
	for n, a := range t.unpacked {
		if a.Epoch > top {
			bound[n] = a
		}
	}
	for n, a := range bound {
		t.put(n, a.Unordered())
		refused(n.key(gr), a, event.Invalid(event.InvalidEpoch, fmt.Errorf("epoch %d of %s is more than %d after the epoch %d", a.Epoch, gr, event.MaxEpochJump, top)))
	}
}

// explained returns the highest epoch that restores explain. It starts from the known epoch
// or, after a start, from the epoch that half of the objects have reached: a few forged
// events can move neither the start up nor a true epoch out of reach.
func (t *table) explained(known uint16) uint16 {
	top := max(known, t.medianEpoch())
	for _, epoch := range slices.Sorted(maps.Keys(t.epochs)) {
		if epoch > top && epoch-top <= event.MaxEpochJump {
			top = epoch
		}
	}
	return top
}

// medianEpoch returns the median of the epochs of the objects' events, the lower one of two.
// Messages that are not events have no epoch.
func (t *table) medianEpoch() uint16 {
	events := t.len()
	counts := maps.Clone(t.epochs)
	for _, a := range t.unpacked {
		if a.UID == "" {
			counts[a.Epoch]--
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

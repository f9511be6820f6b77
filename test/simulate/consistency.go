package simulate

import (
	"strconv"

	"github.com/kuberelay/kuberelay/internal/event"
)

// rulePoint is the promise of a consistency point.
const rulePoint = "a consistency point has every change up to its version before it"

// resolved checks a consistency point that the bus has stored. For each object, the last event
// before the point must show the state that the object had at the point's version, or a later state
// if the object has changed since.
//
// A point doesn't cover the events of another forwarder.
func (o *oracle) resolved(p *process, at event.Point) {
	w, c := o.world, p.config
	version, _ := strconv.ParseUint(at.Version, 10, 64)
	// Versions of different histories are ambiguous. A point says nothing about the namespaces.
	if o.restored || len(w.cluster.spaces) > 1 {
		return
	}
	if version > w.cluster.version {
		w.violate(rulePoint, "the point has version %d, and the cluster is at version %d", version, w.cluster.version)
	}
	states := w.cluster.since(version)
	for object := range w.objects {
		last, _ := o.last(object)
		if o.unknown[object] || w.writers > 1 && o.writer[object] != p.acked {
			continue
		}
		if !c.someIs(last, object, states) {
			w.violate(rulePoint, "the point has version %d: the bus has %s in version %d, which is not a state of the object at the point or later", version, objectNames[object], last.version)
		}
	}
	if !c.someHas(at.Objects, states) {
		w.violate(rulePoint, "the point has version %d and %d objects, and the cluster had another number at every version since", version, at.Objects)
	}
}

// since returns the states of the cluster at a version and after each later change. The last state
// of a deleted object also counts at the version of its delete, as in a watch.
func (c *cluster) since(version uint64) [][len(objectNames)]state {
	is := c.at(version)
	states := [][len(objectNames)]state{is}
	for _, h := range c.history {
		if h.version > version {
			if is[h.object].exists() {
				is[h.object].version = h.version
				states = append(states, is)
			}
			is[h.object] = h.after
			states = append(states, is)
		}
	}
	return states
}

// someIs reports whether the last event of an object shows one of the states.
func (c config) someIs(last published, object int, states [][len(objectNames)]state) bool {
	for _, s := range states {
		if c.isShown(s[object], last) {
			return true
		}
	}
	return false
}

// isShown reports whether the last event of an object shows a state. If the state isn't selected,
// the event must not show the object as live, except in the cases that the configuration allows.
func (c config) isShown(s state, last published) bool {
	switch isSame := last.Live() && last.uid() == s.uid; {
	case c.selects(s):
		return isSame && last.content.Data.Spec == strconv.Itoa(s.spec) && last.content.Metadata.Labels["on"] == strconv.FormatBool(s.label) &&
			(c.project || last.version == s.version && last.content.Data.Noise != nil && *last.content.Data.Noise == strconv.Itoa(s.noise))
	case isSame: // an earlier configuration may have selected it
		return c.selection == byLabel && !c.publishDeselected
	}
	return !last.Live() || c.leavesUnseen()
}

func (c config) selects(s state) bool { return s.exists() && (s.label || c.selection == all) }

// someHas reports whether the configuration selects exactly this many objects in one of the states.
func (c config) someHas(objects int, states [][len(objectNames)]state) bool {
	for _, all := range states {
		n := 0
		for _, s := range all {
			if c.selects(s) {
				n++
			}
		}
		if n == objects {
			return true
		}
	}
	return false
}

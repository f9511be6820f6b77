package torture

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/kuberelay/kuberelay/test/harness"
)

// ids are what the id of an event may be, by the rules of docs/events.md.
func (c *streamCheck) ids(m harness.Received) []string {
	uid, version := m.Attributes["uid"], m.Attributes["resourceversion"]
	last, ok := c.last[m.Subject]
	usual, after := uid+"."+version, positionOf(last)
	if !ok || c.missed || c.world.mayRepeat() {
		// Which event was before is not known, or not which of two that are the same.
		id := m.Attributes["id"]
		after = id[strings.LastIndexByte(id, '.')+1:]
		if _, err := strconv.ParseUint(after, 10, 64); err != nil {
			after = "<number>"
		}
	}
	projected, selected := usual+".projected."+after, usual+".selected."+after
	again := ok && (last.Attributes["uid"] == uid || c.claimed[m.Subject] != "") && last.Attributes["resourceversion"] == version
	switch {
	case m.Kind() == "deleted":
		return []string{uid + ".deleted"}
	case m.Kind() == "deselected":
		return []string{uid + ".deselected." + after}
	case !begins(m) && (!ok || c.missed):
		return []string{usual, projected}
	case !begins(m) && again:
		return []string{projected}
	case !begins(m):
		return []string{usual}
	case !ok && c.missed:
		return []string{usual, selected}
	case again && gone(last) && c.world.purges():
		return []string{usual, selected} // that it was there before may have been forgotten
	case again && last.Kind() == "deselected", again && gone(last) && epoch(last) == epoch(m):
		return []string{selected}
	}
	return []string{usual}
}

// positionOf is the position of a message as ids have it.
func positionOf(m harness.Received) string {
	if m.Topic == "" {
		return fmt.Sprint(m.Sequence)
	}
	return fmt.Sprint(uint64(m.Partition)<<48 | (m.Sequence + 1))
}

// lag is by how much, in versions of the cluster, a forwarder may learn later that a
// namespace is selected again than it learns of the objects in it: two watches have no
// order between them.
const lag = 1000

// selection looks at whether an event fits to the namespaces that were selected.
func (c *streamCheck) selection(m harness.Received) {
	s, home := c.world.settings, m.Attributes["namespace"]
	deselected := m.Kind() == "deselected"
	if deselected && c.conf.shaped && wasHidden(m.Attributes["uid"]) {
		return
	}
	if covered := c.conf.covers(c.world.user, resourceName(m), home, m.Attributes["name"]); !covered && !gone(m) {
		c.wrong(m, "it is not selected in run %d", c.run)
	} else if !covered && s.tells {
		return
	}
	if c.world.restored || home == "" || !s.byTeam {
		if deselected && !(c.conf.labels && s.tells) && !c.world.restored {
			c.wrong(m, "it was selected all the time")
		}
		return
	}
	if !c.world.user.everSelected(home) {
		c.wrong(m, "namespace %s was never selected", home)
	}
	if !deselected || c.conf.labels && s.tells || resourceName(m) == flunders { // whose versions are of their own
		return
	}
	uid := m.Attributes["uid"]
	version, err := strconv.ParseUint(m.Attributes["resourceversion"], 10, 64)
	if err != nil {
		c.wrong(m, "resourceversion: %v", err)
	}
	until, known := c.world.user.unselected(home)
	if !known {
		return
	}
	// Of the times when the namespace was not selected, each lets an object leave once;
	// where there are two forwarders, once for each of them or more.
	from := c.left[uid]
	if c.world.twoNodes() {
		from = 0
	}
	for n := from; n < len(until); n++ {
		if until[n] > math.MaxUint64-lag || until[n]+lag > version {
			c.left[uid] = n + 1
			return
		}
	}
	c.wrong(m, "uid %s in version %d was deselected with cause %s; its namespace was without the label until versions %d, of which it has left %d times",
		uid, version, m.Attributes["cause"], until, c.left[uid])
}

package torture

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/kuberelay/kuberelay/test/harness"
)

// ids returns the possible ids of an event, by the rules of docs/events.md.
func (c *streamCheck) ids(m harness.Received) []string {
	uid, version := m.Attributes["uid"], m.Attributes["resourceversion"]
	last, ok := c.last[m.Subject]
	usual, after := uid+"."+version, positionOf(last)
	if !ok || c.missed || c.world.mayRepeat() {
		// The position of the event before is unknown, or two equal events have different positions.
		id := m.Attributes["id"]
		after = id[strings.LastIndexByte(id, '.')+1:]
		if _, err := strconv.ParseUint(after, 10, 64); err != nil {
			after = "<number>"
		}
	}
	projected, selected := usual+".projected."+after, usual+".selected."+after
	again := ok && (last.Attributes["uid"] == uid || c.claimed[m.Subject].Attributes["sequence"] != "") && last.Attributes["resourceversion"] == version
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
	case !ok && returns(c.lost[m.Subject], m):
		// The forwarder may not know yet that the bus lost the removal.
		return []string{usual, usual + ".selected." + positionOf(c.lost[m.Subject])}
	case again && gone(last) && c.world.purges():
		return []string{usual, selected} // the forwarder may have purged the earlier events
	case again && last.Kind() == "deselected", again && gone(last) && epoch(last) == epoch(m):
		return []string{selected}
	case last.Kind() == "deselected" && last.Attributes["uid"] == uid && c.world.twoNodes():
		// A forwarder adopts the removal of the other one with the last version that it knows.
		return []string{usual, selected}
	}
	return []string{usual}
}

// returns reports whether m shows that the object of a removal exists in the version of the removal.
func returns(removal, m harness.Received) bool {
	return gone(removal) && begins(m) && removal.Attributes["uid"] == m.Attributes["uid"] && removal.Attributes["resourceversion"] == m.Attributes["resourceversion"]
}

// positionOf returns the position of a message in the form of ids.
func positionOf(m harness.Received) string {
	if m.Topic == "" {
		return fmt.Sprint(m.Sequence)
	}
	return fmt.Sprint(uint64(m.Partition)<<48 | (m.Sequence + 1))
}

// lag is the number of cluster versions by which a forwarder's watch of namespaces may be behind its
// watch of the objects in them. The two watches aren't ordered, so the forwarder may learn late that a
// namespace is selected again.
const lag = 1000

// selection checks whether an event fits the selected namespaces.
func (c *streamCheck) selection(m harness.Received) {
	s, home := c.world.settings, m.Attributes["namespace"]
	deselected := m.Kind() == "deselected"
	if deselected && c.conf.shaped && wasHidden(m) {
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
	if !deselected || c.conf.labels && s.tells || resourceName(m) == flunders { // the versions of flunders are independent
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
	// An object leaves the selection once in each period in which its namespace isn't selected. With
	// several forwarders, each of them may publish that event.
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
	c.wrong(m, "uid %s in version %d was deselected with cause %s; its namespace was unselected in periods that end at versions %d, and the first %d are accounted for",
		uid, version, m.Attributes["cause"], until, c.left[uid])
}

package verify

import (
	"fmt"
	"slices"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// candidate is an object of which bus and cluster showed different states. It may
// be in flight: whether it is wrong shows in time.
//
// What time shows is whether the bus arrives. The first state that the cluster
// shows is the reference; the bus must come to it, or past it, within the settle
// time. An object that changes all the time may never be seen in the same state on
// both sides; then each state in turn is the reference, until the bus has arrived
// at one and some state was seen on both sides with the same data, or at as many
// as there is time for.
type candidate struct {
	// returns: an object that was deleted on the bus may come back with the same
	// uid, because labels or fields choose what is seen.
	returns bool

	began time.Time
	aim   *sighting // the reference, nil before the first look
	aimAt time.Time
	was   busEvent // the last event on the bus when the reference was taken

	seen     []sighting // in the cluster, the last at the end
	compared bool       // some state was seen on both sides, with the same data
	differs  bool       // the last state seen on both sides had different data

	cluster sighting // as last seen
	bus     busEvent
}

// verdict is what is known of a candidate.
type verdict int

const (
	undecided verdict = iota
	fine
	inMotion // the bus follows; no state was compared whole
	wrong
)

// glimpse is one look at both sides: at the cluster, then at the bus, read at
// least to the end that it had after that, and, where the bus was ahead, at the
// cluster again.
type glimpse struct {
	first, cluster sighting // the same if there was no second look
	bus            busEvent
	recent         []busEvent // events of the object, those since it is a candidate among them
	lastDeleted    uint64     // position of its last delete
	unread         bool       // the cluster does not serve the version of the API that bus is in
}

// judge takes a glimpse into account.
func (c *candidate) judge(g glimpse, now time.Time, settle time.Duration) verdict {
	c.cluster, c.bus = g.cluster, g.bus
	if c.aim == nil {
		c.began = now
		c.aim, c.aimAt, c.was = &g.first, now, g.bus
	}
	c.compare(g)
	switch {
	case !g.cluster.present && !g.bus.live():
		return fine
	case isSame(g.cluster, g.bus) && !c.differs && (g.unread || isAlike(g.cluster, g.bus)):
		return fine
	case (c.differs || isSame(g.cluster, g.bus)) && now.Sub(c.began) >= settle:
		return wrong // for a version to come with other data is nothing that is in flight
	case isSame(g.cluster, g.bus):
		return undecided // the next version may put it right
	case isAhead(g.bus, g.cluster), c.denies(g):
		// The bus tells of what cannot be: it has not arrived anywhere.
	case c.arrives(g):
		c.take(g, now)
		switch late := now.Sub(c.began) >= settle; {
		case c.compared && !c.differs:
			return fine
		case late:
			return inMotion
		}
	}
	if now.Sub(c.aimAt) >= settle {
		return wrong
	}
	return undecided
}

// compare looks for states that were on both sides. The one that is latest on the
// bus counts.
func (c *candidate) compare(g glimpse) {
	if len(c.seen) >= maxRecent {
		c.seen = slices.Delete(c.seen, 0, maxRecent/2)
	}
	c.seen = append(c.seen, g.first, g.cluster)
	for _, e := range append(slices.Clip(g.recent), g.bus) {
		for _, s := range c.seen {
			if isSame(s, e) && isAlike(s, e) {
				c.differs = !sameData(s, e)
				c.compared = c.compared || !c.differs
			}
		}
	}
}

// denies tells whether the bus has a delete of what is there.
func (c *candidate) denies(g glimpse) bool {
	return !c.returns && g.cluster.present && !g.bus.live() && g.bus.UID == g.cluster.uid
}

// take makes the cluster's present state the reference.
func (c *candidate) take(g glimpse, now time.Time) { c.aim, c.aimAt, c.was = &g.cluster, now, g.bus }

// arrives tells whether the bus has come to the reference or past it.
func (c *candidate) arrives(g glimpse) bool {
	if !c.aim.present {
		return !g.bus.live() || g.bus.UID != c.was.UID || g.lastDeleted > c.was.Position ||
			c.aim.version != "" && newer(g.bus.Version, c.aim.version)
	}
	if newer(g.bus.Version, c.aim.version) {
		return true
	}
	for _, e := range g.recent {
		if isSame(*c.aim, e) {
			return true
		}
	}
	return isSame(*c.aim, g.bus)
}

// isSame tells whether both show the same object in the same version, or in versions
// between which nothing has changed of what is sent.
func isSame(s sighting, e busEvent) bool {
	return s.present && e.live() && s.uid == e.UID && (s.version == e.Version || sameContent(s, e) && !newer(e.Version, s.version))
}

// sameContent tells whether both show the same of what is sent of an object, where that
// is not all of it.
func sameContent(s sighting, e busEvent) bool {
	if !s.projected || e.Content == (digest{}) {
		return false
	}
	if e.Truncated {
		return e.Content == s.contentPart
	}
	return e.Content == s.content
}

// isAlike tells whether both were read in the same version of the API, so that their
// data can be compared.
func isAlike(s sighting, e busEvent) bool { return e.API == "" || s.api == e.API }

func sameData(s sighting, e busEvent) bool {
	if s.version != e.Version {
		return sameContent(s, e)
	}
	if e.Truncated {
		return e.Digest == s.partial
	}
	return e.Digest == s.whole
}

// isAhead tells whether the bus shows what came after the sighting.
func isAhead(e busEvent, s sighting) bool {
	return e.UID != "" && (s.present || e.live()) && newer(e.Version, s.version)
}

// problem describes a candidate that is wrong.
func (c *candidate) problem(k event.Key) Problem {
	s, e := c.cluster, c.bus
	p := Problem{Bus: e.Version, Position: e.Position}
	p.setKey(k)
	if s.present {
		p.Cluster = s.version
	}
	switch {
	case !s.present:
		p.Kind = Extra
		p.Detail = fmt.Sprintf("uid %q is not in the cluster", e.UID)
		if s.left {
			p.Detail = "it is in the cluster, and KUBERELAY_FILTER does not select it"
		} else if s.version != "" {
			p.Detail += " as of " + s.version
		}
	case e.UID == "":
		p.Kind, p.Detail = Missing, "no event of it"
	case !e.live():
		p.Kind, p.Detail = Missing, fmt.Sprintf("the last event is the delete of uid %q", e.UID)
		switch {
		case e.UID == s.uid && e.Type == event.Deselected:
			p.Detail = "the last event says that it is not selected any more"
		case e.UID == s.uid:
			p.Detail = "the last event is its delete"
		}
	case e.UID != s.uid:
		p.Kind, p.Detail = Stale, fmt.Sprintf("the bus has uid %q, the cluster %q", e.UID, s.uid)
	case e.Version != s.version:
		p.Kind, p.Detail = Stale, "the bus is behind the cluster"
		if isAhead(e, s) {
			p.Detail = "the bus is ahead of the cluster, whose history went back"
		}
	default:
		p.Kind, p.Detail = Different, "same version, other data"
	}
	return p
}

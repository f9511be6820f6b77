package verify

import (
	"fmt"
	"slices"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/verify/normal"
	"github.com/kuberelay/kuberelay/internal/verify/replica"
	"github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// candidate is an object that differs between bus and cluster. Its event may be in flight: time
// shows whether it is wrong.
//
// The first state that the cluster shows is the reference. The bus must reach or pass it within
// the settle time. An object that changes all the time may never show the same state on both
// sides. Then each state in turn becomes the reference, until the bus has reached one and both
// sides have shown some state with the same data, or the settle time is over.
type candidate struct {
	// returns: an object that is deleted on the bus can come back with the same uid, because
	// labels or fields select what is visible.
	returns bool

	began time.Time
	aim   *sighting // the reference, nil before the first look
	aimAt time.Time
	was   replica.Event // the last event on the bus when the reference was taken

	seen     []sighting // in the cluster, in order
	compared bool       // both sides have shown some state with the same data
	differs  bool       // the last state that both sides have shown had different data

	asked inquiry   // the last one about the past
	past  *sighting // the answer, nil if there is none

	cluster sighting // as last seen, or as of asked if it is wrong at a consistency point
	bus     replica.Event
	point   string // the version of the consistency point at which it is wrong
}

// maxSeen bounds the sightings that a candidate remembers.
const maxSeen = 64

// verdict is the state of knowledge about a candidate.
type verdict int

const (
	undecided verdict = iota
	fine
	inMotion // the bus follows; no state was compared with its data
	wrong
)

// glimpse is one look at both sides: at the cluster, then at the bus, at least up to the end that
// it has after that, and, if the bus is ahead, at the cluster again.
type glimpse struct {
	first, cluster sighting // the same without a second look
	bus            replica.Event
	recent         []replica.Event // includes the events since the object became a candidate
	lastDeleted    uint64          // position of its last delete
	unread         bool            // the cluster does not serve the API version of the event

	point replica.Point // a consistency point that bus is not before; the zero value for none
	past  *sighting     // the cluster at that point, or at the version of bus if that is later; nil if unknown
}

// agrees reports whether both sides show the same now.
func (g glimpse) agrees() bool {
	return !g.cluster.present && !g.bus.Live() ||
		isSame(g.cluster, g.bus) && (g.unread || isAlike(g.cluster, g.bus) && sameData(g.cluster, g.bus))
}

// judge decides with one more glimpse.
func (c *candidate) judge(g glimpse, now time.Time, settle time.Duration) verdict {
	c.cluster, c.bus = g.cluster, g.bus
	if c.aim == nil {
		c.began = now
		c.aim, c.aimAt, c.was = &g.first, now, g.bus
	}
	c.compare(g)
	switch {
	case !g.cluster.present && !g.bus.Live():
		return fine
	case c.contradicts(g):
		c.cluster, c.point = *g.past, g.point.Version
		return wrong
	case isSame(g.cluster, g.bus) && !c.differs && (g.unread || isAlike(g.cluster, g.bus)):
		return fine
	case (c.differs || isSame(g.cluster, g.bus)) && now.Sub(c.began) >= settle:
		return wrong // data is never in flight without its version
	case isSame(g.cluster, g.bus):
		return undecided // the next version may be right
	case isAhead(g.bus, g.cluster), c.denies(g):
		// The bus shows an impossible state: it has reached nothing.
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

// compare looks for states that both sides have shown. The latest on the bus counts.
func (c *candidate) compare(g glimpse) {
	if len(c.seen) >= maxSeen {
		c.seen = slices.Delete(c.seen, 0, maxSeen/2)
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

// contradicts compares the last event with the past, which never changes. It reports whether the
// event is wrong at a consistency point: nothing in flight can make it right. Without a point it
// only finds whether the data is right.
//
// At the point the bus may lack an object that is in the cluster, if it was deleted before the
// forwarder had published it. So an object is missing only if it still exists. If the selection
// depends on what the object contains, it must also be unchanged: otherwise its delete may say that
// it left the selection after the point.
func (c *candidate) contradicts(g glimpse) bool {
	s, e := g.past, g.bus
	switch {
	case s == nil, e.Live() && s.present && !g.unread && !isAlike(*s, e):
		return false
	case isSame(*s, e) && (g.unread || sameData(*s, e)):
		c.compared, c.differs = true, false
		return false
	case g.point.Version == "":
		c.differs = c.differs || isSame(*s, e)
		return false
	case e.Live():
		return true
	}
	return s.present && g.cluster.present && s.uid == g.cluster.uid && (s.version == g.cluster.version || !c.returns)
}

// denies reports whether the last event is the delete of an object that exists.
func (c *candidate) denies(g glimpse) bool {
	return !c.returns && g.cluster.present && !g.bus.Live() && g.bus.UID == g.cluster.uid
}

// take makes the cluster's present state the reference.
func (c *candidate) take(g glimpse, now time.Time) { c.aim, c.aimAt, c.was = &g.cluster, now, g.bus }

// arrives reports whether the bus has reached or passed the reference.
func (c *candidate) arrives(g glimpse) bool {
	if !c.aim.present {
		return !g.bus.Live() || g.bus.UID != c.was.UID || g.lastDeleted > c.was.Position ||
			c.aim.version != "" && replica.Newer(g.bus.Version, c.aim.version)
	}
	if replica.Newer(g.bus.Version, c.aim.version) {
		return true
	}
	for _, e := range g.recent {
		if isSame(*c.aim, e) {
			return true
		}
	}
	return isSame(*c.aim, g.bus)
}

// isSame reports whether both show the same object in the same version, or in versions between
// which no part that is sent has changed.
func isSame(s sighting, e replica.Event) bool {
	return s.present && e.Live() && s.uid == e.UID && (s.version == e.Version || sameContent(s, e) && !replica.Newer(e.Version, s.version))
}

// sameContent reports whether both show the same content of an object that is sent in part.
func sameContent(s sighting, e replica.Event) bool {
	if !s.projected || e.Content == (normal.Digest{}) {
		return false
	}
	if e.Truncated {
		return e.Content == s.contentPart
	}
	return e.Content == s.content
}

// isAlike reports whether both are in the same version of the API, so that their data can be
// compared.
func isAlike(s sighting, e replica.Event) bool { return e.API == "" || s.api == e.API }

func sameData(s sighting, e replica.Event) bool {
	if s.version != e.Version {
		return sameContent(s, e)
	}
	if e.Truncated {
		return e.Digest == s.partial
	}
	return e.Digest == s.whole
}

// isAhead reports whether the event is newer than the sighting.
func isAhead(e replica.Event, s sighting) bool {
	return e.UID != "" && (s.present || e.Live()) && replica.Newer(e.Version, s.version)
}

// problem describes a candidate that is wrong.
func (c *candidate) problem(k event.Key) report.Problem {
	s, e := c.cluster, c.bus
	p := report.Problem{Bus: e.Version, Position: e.Position, Point: c.point}
	p.SetKey(k)
	if s.present {
		p.Cluster = s.version
	}
	switch {
	case !s.present:
		p.Kind = report.Extra
		p.Detail = fmt.Sprintf("uid %q is not in the cluster", e.UID)
		if s.left {
			p.Detail = "it is in the cluster, and KUBERELAY_FILTER does not select it"
		} else if s.version != "" {
			p.Detail += " as of " + s.version
		}
	case e.UID == "":
		p.Kind, p.Detail = report.Missing, "no event of it"
	case !e.Live():
		p.Kind, p.Detail = report.Missing, fmt.Sprintf("the last event is the delete of uid %q", e.UID)
		switch {
		case e.UID == s.uid && e.Type == wire.Deselected:
			p.Detail = "the last event says that it is no longer selected"
		case e.UID == s.uid:
			p.Detail = "the last event is its delete"
		}
	case e.UID != s.uid:
		p.Kind, p.Detail = report.Stale, fmt.Sprintf("the bus has uid %q, the cluster %q", e.UID, s.uid)
	case e.Version != s.version:
		p.Kind, p.Detail = report.Stale, "the bus is behind the cluster"
		switch {
		case isAhead(e, s) && c.point != "":
			p.Detail = "the cluster never had this version of it"
		case isAhead(e, s):
			p.Detail = "the bus is ahead of the cluster, whose history went back"
		}
	default:
		p.Kind, p.Detail = report.Different, "same version, other data"
	}
	return p
}

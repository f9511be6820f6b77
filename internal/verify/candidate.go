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

// candidate is an object that differs between bus and cluster. Its event might be in flight, so verify
// has to wait before it can tell whether the object is wrong.
//
// The first state that the cluster shows is the reference. The bus must reach or pass the reference
// within the settle time. An object that changes constantly might never show the same state on both
// sides. In that case, each state in turn becomes the reference. This ends when the settle time is over,
// or when the bus has reached a reference and both sides have shown some state with the same data.
type candidate struct {
	// returns means that an object that is deleted on the bus can return with the same uid, because
	// its selection depends on more than its existence.
	returns bool

	began       time.Time
	reference   *sighting // nil before the first observation
	referenceAt time.Time
	busBefore   replica.Event // the last event on the bus when the reference was taken

	seen     []sighting // states that the cluster showed, in order
	compared bool       // both sides have shown some state with the same data
	differs  bool       // the data differed in the last state that both sides have shown

	asked inquiry   // the last inquiry about the past
	past  *sighting // the result of the inquiry, nil if there is none

	cluster sighting // the last sighting, or the past one if the object is wrong at a consistency point
	bus     replica.Event
	point   string // the version of the consistency point at which it is wrong
}

// maxSeen is the maximum number of sightings that a candidate remembers.
const maxSeen = 64

// verdict is the result of judging a candidate.
type verdict int

const (
	undecided verdict = iota
	fine
	inMotion // the bus keeps up with the versions, but both sides never showed the same state to compare
	wrong
)

// observation is the result of one round. verify reads the cluster first, and then the bus up to
// its current end. If the bus might be ahead, verify reads the cluster again.
type observation struct {
	first, cluster sighting // equal if the cluster was not read again
	bus            replica.Event
	recent         []replica.Event // the events since the object became a candidate, and the one before them
	lastDeleted    uint64          // position of the object's last delete
	unread         bool            // the cluster does not serve the API version of the event

	point replica.Point // a consistency point that the bus has reached; the zero value for none
	past  *sighting     // the cluster at that point, or at the version of bus if that is later; nil if unknown
}

// agrees reports whether both sides show the same state now.
func (o observation) agrees() bool {
	return !o.cluster.present && !o.bus.Live() ||
		isSame(o.cluster, o.bus) && (o.unread || isAlike(o.cluster, o.bus) && sameData(o.cluster, o.bus))
}

// judge adds an observation and returns the verdict.
func (c *candidate) judge(o observation, now time.Time, settle time.Duration) verdict {
	c.cluster, c.bus = o.cluster, o.bus
	if c.reference == nil {
		c.began = now
		c.reference, c.referenceAt, c.busBefore = &o.first, now, o.bus
	}
	c.compare(o)
	late := now.Sub(c.began) >= settle
	switch {
	case !o.cluster.present && !o.bus.Live():
		return fine
	case c.contradicts(o):
		c.cluster, c.point = *o.past, o.point.Version
		return wrong
	case isSame(o.cluster, o.bus) && !c.differs && (o.unread || isAlike(o.cluster, o.bus)):
		return fine
	case (c.differs || isSame(o.cluster, o.bus)) && late:
		return wrong // an event has data and version together, so no event in flight can correct the data
	case isSame(o.cluster, o.bus):
		return undecided // the data of the next version might be right
	case isAhead(o.bus, o.cluster), c.denies(o):
		// The bus shows an impossible state, so it has not reached the reference.
	case c.hasReached(o):
		c.reference, c.referenceAt, c.busBefore = &o.cluster, now, o.bus
		if c.compared && !c.differs {
			return fine
		}
		if late {
			return inMotion
		}
	}
	if now.Sub(c.referenceAt) >= settle {
		return wrong
	}
	return undecided
}

// compare compares the data of the states that both sides have shown. If both sides have shown
// several states, the latest of them on the bus decides whether the data differs.
func (c *candidate) compare(o observation) {
	if len(c.seen) >= maxSeen {
		c.seen = slices.Delete(c.seen, 0, maxSeen/2)
	}
	c.seen = append(c.seen, o.first, o.cluster)
	for _, e := range append(slices.Clip(o.recent), o.bus) {
		for _, s := range c.seen {
			if isSame(s, e) && isAlike(s, e) {
				c.differs = !sameData(s, e)
				c.compared = c.compared || !c.differs
			}
		}
	}
}

// contradicts compares the last event with the past, which never changes. It reports whether the
// event is wrong at a consistency point, so that no event in flight can make it right. Without a
// point, contradicts only records whether the data is right.
//
// The bus might lack an object that existed at the point, if the object was deleted before the
// forwarder could publish it. So an object is missing only if it still exists. If the selection
// depends on more than the object's existence, the object must also be unchanged, because its last
// event might say that it left the selection after the point.
func (c *candidate) contradicts(o observation) bool {
	s, e := o.past, o.bus
	switch {
	case s == nil, e.Live() && s.present && !o.unread && !isAlike(*s, e):
		return false
	case o.unread && s.projected && s.present && e.Live() && s.uid == e.UID && replica.Newer(s.version, e.Version):
		return false // only comparing the data shows whether a published field has changed since the event
	case isSame(*s, e) && (o.unread || sameData(*s, e)):
		c.compared, c.differs = true, false
		return false
	case o.point.Version == "":
		c.differs = c.differs || isSame(*s, e)
		return false
	case e.Live():
		return true
	}
	return s.present && o.cluster.present && s.uid == o.cluster.uid && (s.version == o.cluster.version || !c.returns)
}

// denies reports whether the last event removes an object that still exists. It returns false if the
// object might have left the selection and returned.
func (c *candidate) denies(o observation) bool {
	return !c.returns && o.cluster.present && !o.bus.Live() && o.bus.UID == o.cluster.uid
}

// hasReached reports whether the bus has reached or passed the reference.
func (c *candidate) hasReached(o observation) bool {
	if !c.reference.present {
		return !o.bus.Live() || o.bus.UID != c.busBefore.UID || o.lastDeleted > c.busBefore.Position ||
			c.reference.version != "" && replica.Newer(o.bus.Version, c.reference.version)
	}
	if replica.Newer(o.bus.Version, c.reference.version) {
		return true
	}
	for _, e := range o.recent {
		if isSame(*c.reference, e) {
			return true
		}
	}
	return isSame(*c.reference, o.bus)
}

// isSame reports whether the sighting and the event show the same object at the same version, or at
// two versions between which no published field has changed.
func isSame(s sighting, e replica.Event) bool {
	return s.present && e.Live() && s.uid == e.UID && (s.version == e.Version || sameContent(s, e) && !replica.Newer(e.Version, s.version))
}

// sameContent reports whether the sighting and the event show the same content of an object that is
// published in part.
func sameContent(s sighting, e replica.Event) bool {
	if !s.projected || e.Content == (normal.Digest{}) {
		return false
	}
	if e.Truncated {
		return e.Content == s.contentPart
	}
	return e.Content == s.content
}

// isAlike reports whether the data of the sighting and the event can be compared: they have the same
// API version, or the event names none.
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
			p.Detail = "it is in the cluster, but KUBERELAY_FILTER does not select it"
		} else if s.version != "" {
			p.Detail += " as of " + s.version
		}
	case e.UID == "":
		p.Kind, p.Detail = report.Missing, "the bus has no event of it"
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
			p.Detail = "the bus is ahead of the cluster, whose history was rolled back"
		}
	default:
		p.Kind, p.Detail = report.Different, "same version, other data"
	}
	return p
}

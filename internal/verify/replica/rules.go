package replica

import (
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// hasPredecessor reports whether the first message of an object on the bus has a predecessor that the bus
// lost. A lost predecessor excuses a first message that isn't the first event of its UID. The previousversion
// of an event is always the version of an event that the bus acknowledged. So the writer began correctly, and
// the bus lost the first events later: through a lower message limit in the past, compaction, an operator, or
// data loss. The current state is still right, because the last message has it. The previousversion tells a
// subscriber that the object had an earlier event.
//
// After a foreign message or a tombstone, the object has no excuse, because a writer that has read
// either of them starts over.
func (o *object) hasPredecessor(e Event) bool {
	return e.Previous != "" && o.count == 1 && !o.foreign
}

// regression describes a violation by e that is certain even if other events were between last and
// e. It returns "" if there is no such violation.
func regression(last, e Event) string {
	switch {
	case e.Epoch < last.Epoch:
		return fmt.Sprintf("the epoch falls from %d to %d", last.Epoch, e.Epoch)
	case e.ID == last.ID && e.Type != wire.Deleted:
		return fmt.Sprintf("id %q occurs twice", e.ID)
	case e.Epoch > last.Epoch:
		return "" // the history was rolled back, for example because etcd was restored from a backup
	}
	order, ok := compareVersions(e.Version, last.Version)
	switch {
	case !ok:
		return ""
	case order < 0 && e.UID == last.UID:
		return fmt.Sprintf("the version falls from %s to %s", last.Version, e.Version)
	case order < 0:
		return fmt.Sprintf("the version falls from %s of uid %q to %s of uid %q", last.Version, last.UID, e.Version, e.UID)
	case order == 0 && e.UID == last.UID && e.Live() && !e.Again:
		return fmt.Sprintf("version %s occurs twice", e.Version)
	}
	return ""
}

// follows describes how e violates a rule for events that directly follow each other. It returns ""
// if e violates none. purge reports whether a purge between the two explains the violation. A purge
// removes events up to a delete.
func follows(last, e Event) (detail string, purge bool) {
	switch same := e.UID == last.UID; {
	case e.ID == last.ID: // e is a delete, because regression has reported any other event
		return fmt.Sprintf("id %q occurs twice", e.ID), false
	case !same && last.Live():
		return fmt.Sprintf("uid %q follows uid %q without a delete in between", e.UID, last.UID), e.Type.Begins()
	case !same && !e.Type.Begins():
		return fmt.Sprintf("the first event of uid %q is of type %s", e.UID, e.Type.Short()), false
	case !same && e.Previous != "":
		return fmt.Sprintf("the first event of uid %q has previousversion %q", e.UID, e.Previous), false
	case !same:
		return "", false
	case !last.Live() && !e.Type.Begins():
		return fmt.Sprintf("type %s follows the delete of the same uid", e.Type.Short()), false
	case last.Live() && e.Type.Begins():
		return fmt.Sprintf("type %s of a uid that already exists", e.Type.Short()), true
	case e.Previous != last.Version:
		return otherPrevious(last, e), e.Type.Begins()
	}
	return "", false
}

// check compares an event with the preceding event. It reports at most one violation.
func (h *history) check(o *object, e Event) error {
	last := o.last
	if o.foreign { // the next writer could not know the events before the foreign message
		last = Event{}
	}
	switch {
	case o.foreign && o.last.UID != "" && e.Type.Begins():
		return nil
	case last.UID == "":
		if !e.Type.Begins() && !o.hasPredecessor(e) {
			h.suspect(o, e, e.Whole, false, fmt.Sprintf("the first event of uid %q is of type %s", e.UID, e.Type.Short()))
		}
		return nil
	case h.repeats && e.ID == last.ID && e.Epoch == last.Epoch:
		return nil
	}
	if o.oldVersion {
		last.Version = "" // not comparable
	}
	// anew means that the writer of e had no entry for the object, because the delete was purged or
	// the writer has forgotten it.
	anew := last.Type.Removes() && last.UID == e.UID && e.Type.Begins() && e.Previous == ""
	forgotten := anew && h.forgets && e.Stored.Sub(last.Stored) >= h.retention-time.Second // the retention counts whole seconds
	e.Again = e.Again || forgotten
	if detail := regression(last, e); detail != "" {
		h.report(e, report.Misordered, detail)
		return nil
	}
	detail, purge := follows(o.last, e)
	if detail == "" || forgotten {
		return nil
	}
	return h.contradict(o, e, anew, purge, detail)
}

// checkRepair compares a repair with the preceding event if the bus no longer has the message that
// it repairs. That message might have been any event, so the repair can have any type and UID. If the
// repair has a previousversion, it is the version of the event before the foreign messages.
func (h *history) checkRepair(o *object, e Event) error {
	last := o.last
	isRepeated := h.repeats && e.ID == last.ID && e.Epoch == last.Epoch
	if last.UID == "" || e.Previous == "" || e.Previous == last.Version || isRepeated {
		return nil
	}
	return h.contradict(o, e, false, e.Type.Begins(), otherPrevious(last, e))
}

func otherPrevious(last, e Event) string {
	return fmt.Sprintf("previousversion is %q, the event before has %q", e.Previous, last.Version)
}

// contradict handles an event e that doesn't match the last event. If anew is set, contradict reports
// only a certain mismatch, and ignores any other. purge means that a purge between the two events would
// explain the mismatch.
func (h *history) contradict(o *object, e Event, anew, purge bool, detail string) error {
	certain := e.Whole
	if !certain {
		var err error
		if certain, err = h.kept(e.Key, o.last.Position); err != nil {
			return err
		}
	}
	if anew && !certain {
		return nil
	}
	purge = purge && h.now().Sub(o.last.Stored) >= h.retention
	h.suspect(o, e, certain, purge, detail+", after the event at "+h.show(o.last.Position))
	return nil
}

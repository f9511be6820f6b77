package verify

import (
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
)

// tellsOfOneBefore excuses the first message of an object that is not its beginning,
// whatever the bus keeps and wherever the beginning went: a previousversion is only
// ever that of an event which the bus had acknowledged. So the writer began where it
// should, and the bus has dropped the beginning since: by a limit that was lower
// once, by compaction, by an operator's hand, or because it lost it. None of that
// disturbs the present state, which the last message has, and a subscriber sees by
// previousversion that something was before.
//
// It is no excuse after a message of someone else or a tombstone, since a writer that
// knows of either begins anew.
func (o *object) tellsOfOneBefore(e busEvent) bool {
	return e.Previous != "" && o.count == 1 && !o.foreign
}

// fallen says what is wrong with e after last, whatever was between them; "" for
// nothing.
func fallen(last, e busEvent) string {
	switch {
	case e.Epoch < last.Epoch:
		return fmt.Sprintf("the epoch falls from %d to %d", last.Epoch, e.Epoch)
	case e.ID == last.ID && e.Type != event.Deleted:
		return fmt.Sprintf("id %q is there twice", e.ID)
	case e.Epoch > last.Epoch:
		return "" // history went back, and versions with it
	}
	order, ok := compareVersions(e.Version, last.Version)
	switch {
	case !ok:
		return ""
	case order < 0 && e.UID == last.UID:
		return fmt.Sprintf("the version falls from %s to %s", last.Version, e.Version)
	case order < 0:
		return fmt.Sprintf("the version falls from %s of uid %q to %s of uid %q", last.Version, last.UID, e.Version, e.UID)
	case order == 0 && e.UID == last.UID && e.live() && !e.Again:
		return fmt.Sprintf("version %s is there twice", e.Version)
	}
	return ""
}

// follows says what is wrong with e as the neighbour of last; "" for nothing.
// Purge tells whether a purge between the two, which ends with a delete, would make
// it right.
func follows(last, e busEvent) (detail string, purge bool) {
	switch same := e.UID == last.UID; {
	case e.ID == last.ID: // of a delete: else it has fallen
		return fmt.Sprintf("id %q is there twice", e.ID), false
	case !same && last.live():
		return fmt.Sprintf("uid %q follows uid %q without a delete in between", e.UID, last.UID), e.begins()
	case !same && !e.begins():
		return fmt.Sprintf("the first event of uid %q is of type %s", e.UID, e.Type.Short()), false
	case !same && e.Previous != "":
		return fmt.Sprintf("the first event of uid %q has previousversion %q", e.UID, e.Previous), false
	case !same:
		return "", false
	case !last.live() && !e.begins():
		return fmt.Sprintf("type %s follows the delete of the same uid", e.Type.Short()), false
	case last.live() && e.begins():
		return fmt.Sprintf("type %s of a uid that exists already", e.Type.Short()), true
	case e.Previous != last.Version:
		return fmt.Sprintf("previousversion is %q, the event before has %q", e.Previous, last.Version), e.begins()
	}
	return "", false
}

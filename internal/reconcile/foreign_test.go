package reconcile

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

func foreign(a event.Acked) event.Acked { return a.Before(event.Acked{Position: 9}) }

// TestDecideForeign verifies that a foreign event requires a read until a read has confirmed the
// informer's state.
func TestDecideForeign(t *testing.T) {
	covered := ObjectView{Covered: true, Synced: true, Selected: true, NamespacesKnown: true, NamespaceExists: true, ReferencesKnown: true}
	with := func(live *event.Object, outlived uint64) ObjectView {
		v := covered
		v.Live, v.Outlived.Position = live, outlived
		return v
	}
	unselected := covered
	unselected.Selected = false
	syncing := covered
	syncing.Synced = false
	absent := with(object("A", "5"), 9)
	absent.Outlived.AbsentAt = "6"
	for name, c := range map[string]struct {
		acked event.Acked
		view  ObjectView
		want  decision
	}{
		"live, a read found nothing": {live("A", "5"), absent, readObject},
		"live":                       {live("A", "5"), with(object("A", "5"), 0), readObject},
		"live, confirmed":            {live("A", "5"), with(object("A", "5"), 9), enqueue},
		"live, confirmed before":     {live("A", "5"), with(object("A", "5"), 8), readObject},
		"gone":                       {deleted("A", "5"), with(nil, 0), readObject},
		"gone, confirmed":            {deleted("A", "5"), with(nil, 9), enqueue},
		"recreated, a delete is due": {live("A", "5"), with(object("B", "7"), 9), readObject},
		"gone, a delete is due":      {live("A", "5"), with(nil, 9), readObject},
		"not synced":                 {live("A", "5"), syncing, wait},
		"not selected, and gone":     {deleted("A", "5"), unselected, markOutlived},
		"not selected, and it stays": {live("A", "5"), unselected, leaveOnBus},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decide(event.Resource{Namespaced: true}, 0, pair{key: testKey, acked: foreign(c.acked)}, c.view); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// TestConcludeForeign verifies that a read confirms an informer that shows the state of the read or
// a later state.
func TestConcludeForeign(t *testing.T) {
	there, nothing := readResult{isThere, "A", "5", ""}, readResult{finding: isThere}
	synced := ObjectView{Covered: true, Synced: true}
	for name, c := range map[string]struct {
		found readResult
		acked event.Acked
		live  *event.Object
		want  decision
	}{
		"the same":                    {there, live("A", "5"), object("A", "5"), markOutlived},
		"a later state is shown":      {there, live("A", "5"), object("A", "6"), markOutlived},
		"an earlier state is shown":   {there, live("A", "4"), object("A", "4"), wait},
		"another uid is shown":        {there, deleted("B", "4"), object("B", "4"), wait},
		"nothing is shown":            {there, deleted("A", "4"), nil, wait},
		"nothing, and nothing":        {nothing, deleted("A", "4"), nil, markOutlived},
		"nothing, and one is shown":   {nothing, deleted("A", "4"), object("B", "5"), wait},
		"gone":                        {readResult{finding: isGone}, live("A", "5"), nil, inferDelete},
		"gone, and recreated":         {readResult{isGone, "B", "6", ""}, live("A", "5"), object("B", "6"), inferDelete},
		"gone, and not shown yet":     {readResult{isGone, "B", "6", ""}, live("A", "5"), nil, wait},
		"gone, and it is shown still": {readResult{finding: isGone}, live("A", "5"), object("A", "5"), wait},
	} {
		t.Run(name, func(t *testing.T) {
			v := synced
			v.Live = c.live
			if got := c.found.conclude(foreign(c.acked), v, 0, false); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// TestConfirmForeign verifies that a read that finds no object allows both the delete of the object
// and the repair of the foreign event, and records the version of the read. Without that version, the
// repair would not wait for a watch that is behind the foreign event.
func TestConfirmForeign(t *testing.T) {
	b := contradicted(t, nil, live("A", "5"))
	b.acked, b.err, b.version = foreign(live("A", "5")), notFound(), "20"
	if _, err := b.confirm(t); err != nil {
		t.Fatal(err)
	}
	if want := (event.Outlived{Position: 9, AbsentAt: "20", At: b.Now()}); len(b.tombstones[testKey]) != 1 || b.object.Outlived != want {
		t.Errorf("%d tombstones, confirmed at %+v; want a tombstone, and %+v", len(b.tombstones[testKey]), b.object.Outlived, want)
	}
}

// TestConfirmForeignOfAnUnselectedObject verifies that an object that a read finds is recorded as
// unselected, not as gone, if the informer does not show it or the filter excludes it.
func TestConfirmForeignOfAnUnselectedObject(t *testing.T) {
	filtered := object("B", "7")
	filtered.Unselected = true
	for name, live := range map[string]*event.Object{"by labels": nil, "by content": filtered} {
		b := contradicted(t, live, deleted("A", "5"))
		b.acked, b.o, b.object.Filtered, b.object.Version = foreign(deleted("A", "5")), stored("B", "7"), true, "7"
		_, err := b.confirm(t)
		if want := (event.Outlived{Position: 9, Unselected: true, At: b.Now()}); err != nil || b.object.Outlived != want {
			t.Errorf("%s: confirmed at %+v, %v; want %+v", name, b.object.Outlived, err, want)
		}
	}
}

// TestAMarkOfAnotherEvent verifies that an outlived mark does not apply to an event that shows the
// object as existing. In an earlier version, a position was marked before its event was known, and
// after a restore of etcd, that event had a later state than the informer. The forwarder enqueued
// and compared the key in turn forever, and no read found the restore.
func TestAMarkOfAnotherEvent(t *testing.T) {
	v := ObjectView{Covered: true, Synced: true, Selected: true, NamespacesKnown: true, NamespaceExists: true, ReferencesKnown: true}
	v.Live, v.Outlived.Position = object("A", "5"), 9
	later := live("A", "8")
	later.Position = 9
	if got := decide(event.Resource{Namespaced: true}, 0, pair{key: testKey, acked: later}, v); got != readObject {
		t.Errorf("got %d, want a read", got)
	}
}

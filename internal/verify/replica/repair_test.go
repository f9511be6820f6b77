package replica

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/verify/report"
)

// TestHistoryOfEveryRepair verifies every repair that the forwarder decides on, after every form of
// the events before the foreign message. Whether or not the bus still has the foreign message, a
// repair is no problem. If the event before the foreign message is lost too, and the version of its
// predecessor differs, the previousversion of the repair shows the loss.
func TestHistoryOfEveryRepair(t *testing.T) {
	repairs := map[string]bool{}
	for _, before := range []struct {
		script []string
		known  event.Acked
	}{
		{nil, event.Acked{}},
		{[]string{"created A 5"}, event.Acked{UID: "A", ResourceVersion: "5"}},
		{[]string{"created A 5", "updated A 7 <5"}, event.Acked{UID: "A", ResourceVersion: "7"}},
		{[]string{"created A 50", "updated A 7 <50 e1"}, event.Acked{UID: "A", ResourceVersion: "7", Epoch: 1}},
		{[]string{"created A 5", "deleted A 7 <5"}, event.Acked{UID: "A", ResourceVersion: "7", Deleted: true}},
		{[]string{"created A 7", "deleted A 7 <7 e1"}, event.Acked{UID: "A", ResourceVersion: "7", Epoch: 1, Deleted: true}},
		{[]string{"created A 7", "deselected A 7 <7"}, event.Acked{UID: "A", ResourceVersion: "7", Deleted: true, Deselected: true}},
		{[]string{"created A 5", "deleted A 6 <5", "created B 7"}, event.Acked{UID: "B", ResourceVersion: "7"}},
	} {
		for _, forged := range []event.Acked{
			{}, // not an event
			{UID: "A", ResourceVersion: "2"},
			{UID: "A", ResourceVersion: "7"},
			{UID: "A", ResourceVersion: "99"},
			{UID: "A", ResourceVersion: "9", Epoch: 3},
			{UID: "A", ResourceVersion: "7", Deleted: true},
			{UID: "A", ResourceVersion: "99", Deleted: true},
			{UID: "A", ResourceVersion: "99", Deleted: true, Deselected: true},
			{UID: "C", ResourceVersion: "99"},
			{UID: "C", ResourceVersion: "99", Deleted: true},
		} {
			for _, v := range clusterStates(before.known.Epoch) {
				position := uint64(len(before.script) + 1)
				shown := event.Stored{Acked: forged}
				shown.Acked.Position = position
				known := before.known.Before(shown.Acked)
				v.Outlived.Position = position
				_, c, _ := ledger.DecideForeign(web, v, known, shown, false)
				if c == nil || !c.Repairs || c.After != position {
					continue
				}
				if c.Object == nil {
					c.Object = known.Identity(web)
				}
				repair := lineOf(c.Type.Short(), string(c.Object.UID), c.Object.ResourceVersion, c.Previous, c.Epoch) + " repairs"
				repairs[repair] = true
				message, foreign := "foreign", fmt.Sprint("foreign ", position)
				if forged.UID != "" {
					message = lineOf(typeOf(forged), forged.UID, forged.ResourceVersion, before.known.ResourceVersion, forged.Epoch)
				}
				expect(t, append(slices.Clone(before.script), message, repair), foreign)
				expect(t, append(slices.Clone(before.script), "wait 1", repair), "")
				expect(t, append(slices.Clone(before.script), "foreign", "wait 1", repair), fmt.Sprint("malformed ", position))
				if n := len(before.script); n > 1 && c.Previous != "" && strings.Fields(before.script[n-2])[2] != c.Previous {
					expect(t, append(slices.Clone(before.script[:n-1]), "wait 2", repair), fmt.Sprint("misordered ", position+1))
				}
			}
		}
	}
	for _, kind := range []string{"created A", "created B", "snapshot A", "updated A", "updated B", "deleted A", "deleted B", "deleted C", "deselected A"} {
		found := false
		for repair := range repairs {
			found = found || strings.HasPrefix(repair, kind)
		}
		if !found {
			t.Errorf("no repair is %s: %v", kind, repairs)
		}
	}
}

// clusterStates returns what a forwarder can know about an object in an epoch.
func clusterStates(epoch uint16) (all []event.View) {
	object := func(uid, version string) *event.Object {
		return &event.Object{Namespace: web.Namespace, Name: web.Name, UID: types.UID(uid), ResourceVersion: version}
	}
	view := event.View{Version: "100", Reported: "100", Waited: true, Epoch: epoch}
	gone := view
	gone.Outlived.AbsentAt = "100"
	unselected := gone
	unselected.Outlived.Unselected = true
	all = append(all, gone, unselected)
	for _, uid := range []string{"A", "B"} {
		for _, version := range []string{"7", "9"} {
			live := view
			live.Live = object(uid, version)
			all = append(all, live)
			live.FirstSync = true
			all = append(all, live)
		}
		for _, last := range []*event.Object{nil, object(uid, "7"), object(uid, "9")} {
			for _, deselected := range []bool{false, true} {
				deleted := gone
				deleted.Tombstones = []event.Tombstone{{UID: uid, Object: last, Deselected: deselected}}
				all = append(all, deleted)
			}
		}
	}
	return all
}

func typeOf(a event.Acked) string {
	switch {
	case a.Deselected:
		return "deselected"
	case a.Deleted:
		return "deleted"
	}
	return "updated"
}

// lineOf returns a line for fold.
func lineOf(kind, uid, version, previous string, epoch uint16) string {
	line := fmt.Sprintf("%s %s %s e%d", kind, uid, version, epoch)
	if previous != "" {
		line += " <" + previous
	}
	return line
}

// expect verifies the kinds and positions of the problems of a script.
func expect(t *testing.T, script []string, want string) {
	t.Helper()
	h := fold(t, script)
	slices.SortFunc(h.problems, func(a, b report.Problem) int { return int(a.Position) - int(b.Position) })
	var got []string
	for _, p := range h.problems {
		got = append(got, fmt.Sprint(p.Kind, " ", p.Position))
	}
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("%q: got %q, want %q: %+v", script, got, want, h.problems)
	}
}

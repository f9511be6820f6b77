package verify

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/verify/replica"
)

// TestContradicts verifies which last events on the bus contradict the past of the cluster.
func TestContradicts(t *testing.T) {
	for _, tc := range []struct {
		name              string
		past, now, bus    string
		noPoint, returns  bool
		projected, unread bool
		want              bool
		compared, differs bool
	}{
		{name: "right, and changed since", past: "A 5", now: "A 9", bus: "A 5", compared: true},
		{name: "right, and deleted since", past: "A 5", now: "none 9", bus: "A 5", compared: true},
		{name: "other data", past: "A 5 x", now: "A 9", bus: "A 5 y", want: true},
		{name: "stale", past: "A 5", now: "A 5", bus: "A 4", want: true},
		{name: "another uid", past: "B 5", now: "B 5", bus: "A 4", want: true},
		{name: "extra", past: "none 8", now: "none 9", bus: "A 4", want: true},
		{name: "never had the version", past: "A 5", now: "A 9", bus: "A 7", want: true},
		{name: "missing", past: "A 5", now: "A 5", bus: "none", want: true},
		{name: "missing, and changed since", past: "A 5", now: "A 9", bus: "none", want: true},
		{name: "missing, and deleted since", past: "A 5", now: "none 9", bus: "none"},
		{name: "missing, and recreated since", past: "A 5", now: "B 9", bus: "none"},
		{name: "created since", past: "none 5", now: "A 9", bus: "none"},
		{name: "only a delete", past: "A 5", now: "A 5", bus: "deleted A 5", want: true},
		{name: "deleted since", past: "A 5", now: "none 9", bus: "deleted A 5"},
		{name: "the delete of the one before", past: "B 5", now: "B 5", bus: "deleted A 4", want: true},
		{name: "may have left the selection and come back", past: "A 5", now: "A 9", bus: "deleted A 7", returns: true},
		{name: "unchanged, so it never left the selection", past: "A 5", now: "A 5", bus: "deleted A 5", returns: true, want: true},
		{name: "stale without a point", past: "A 5", now: "A 9", bus: "A 4", noPoint: true},
		{name: "right without a point", past: "A 4", now: "A 9", bus: "A 4", noPoint: true, compared: true},
		{name: "stale and published in part", past: "A 5 y", now: "A 5", bus: "A 4 x", projected: true, want: true},
		{name: "an unpublished field has changed", past: "A 5 x", now: "A 9", bus: "A 4 x", projected: true, compared: true},
		{name: "an API version that is not served, and published in part", past: "A 5 y", now: "A 5", bus: "A 4 x", projected: true, unread: true},
		{name: "an API version that is not served, and another uid", past: "B 5 y", now: "B 5", bus: "A 4 x", projected: true, unread: true, want: true},
		{name: "an API version that is not served, and stale", past: "A 5", now: "A 5", bus: "A 4", unread: true, want: true},
		{name: "other data without a point", past: "A 4 x", now: "A 9", bus: "A 4 y", noPoint: true, differs: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			past := present(tc.past)
			g := observation{cluster: present(tc.now), bus: onBus(tc.bus), past: &past, point: replica.Point{Version: "8"}, unread: tc.unread}
			if tc.projected {
				past, g.bus = projectedIn(tc.past), onProjectedBus(tc.bus)
			}
			if tc.noPoint {
				g.point = replica.Point{}
			}
			c := &candidate{returns: tc.returns}
			if got := c.contradicts(g); got != tc.want || c.compared != tc.compared || c.differs != tc.differs {
				t.Errorf("got %t, compared %t, differs %t, want %t, %t, %t", got, c.compared, c.differs, tc.want, tc.compared, tc.differs)
			}
		})
	}
}

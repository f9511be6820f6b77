package verify

import (
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/verify/replica"
	"github.com/kuberelay/kuberelay/internal/verify/report"
)

// projectedIn returns a sighting of an object that is published in part, "A 5 data". onProjectedBus
// returns an event of such an object.
func projectedIn(s string) sighting {
	v := present(s)
	v.projected, v.content, v.contentPart = true, v.whole, v.partial
	return v
}

func onProjectedBus(s string) replica.Event {
	e := onBus(s)
	e.Content = e.Digest
	return e
}

// TestIsSame verifies that another version with the same content is the same, unless the bus is
// ahead. A version that the cluster never had is wrong, whatever its content.
func TestIsSame(t *testing.T) {
	whole := present("A 5 x")
	for name, c := range map[string]struct {
		cluster sighting
		bus     replica.Event
		want    bool
	}{
		"the same version":                         {projectedIn("A 5 x"), onProjectedBus("A 5 x"), true},
		"the same version, other content":          {projectedIn("A 5 x"), onProjectedBus("A 5 y"), true},
		"the bus is behind, the same content":      {projectedIn("A 6 x"), onProjectedBus("A 5 x"), true},
		"the bus is behind, other content":         {projectedIn("A 6 x"), onProjectedBus("A 5 y"), false},
		"the bus is behind, a part of the content": {projectedIn("A 6 x"), onProjectedBus("truncated A 5 x"), true},
		"the bus is ahead, the same content":       {projectedIn("A 5 x"), onProjectedBus("A 50 x"), false},
		"the bus is ahead, a part of the content":  {projectedIn("A 5 x"), onProjectedBus("truncated A 50 x"), false},
		"the bus is behind, sent whole":            {whole, onBus("A 4 x"), false},
		"another uid":                              {projectedIn("B 5 x"), onProjectedBus("A 5 x"), false},
		"deleted on the bus":                       {projectedIn("A 5 x"), onProjectedBus("deleted A 5 x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isSame(c.cluster, c.bus); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestJudgeABusThatIsAhead verifies that a bus ahead of the cluster is wrong, even if it has the
// content of the cluster and objects are published in part.
func TestJudgeABusThatIsAhead(t *testing.T) {
	c, g := &candidate{}, observation{first: projectedIn("A 5 x"), cluster: projectedIn("A 5 x"), bus: onProjectedBus("A 50 x")}
	g.bus.Position, g.recent = 1, []replica.Event{g.bus}
	now := someTime
	for _, want := range []verdict{undecided, undecided, undecided, wrong} {
		if got := c.judge(g, now, 2500*time.Millisecond); got != want {
			t.Fatalf("got verdict %d, want %d", got, want)
		}
		now = now.Add(time.Second)
	}
	if p := c.problem(web); p.Kind != report.Stale {
		t.Errorf("got %+v, want %s", p, report.Stale)
	}
}

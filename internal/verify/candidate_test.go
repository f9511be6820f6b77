package verify

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/verify/normal"
	"github.com/kuberelay/kuberelay/internal/verify/replica"
	"github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// present returns a sighting of an object in the cluster: "A 5", or with other data "A 5 data".
// "none 5" means no object.
func present(s string) sighting {
	words := strings.Fields(s)
	if words[0] == "none" { // the version is that of the list
		return sighting{version: words[1]}
	}
	data := strings.Join(words[2:], " ")
	return sighting{present: true, uid: words[0], version: words[1], whole: normal.DigestOf("whole " + data), partial: normal.DigestOf("partial " + data)}
}

// onBus returns an event: "A 5", "truncated A 5", "deleted A 5", "none".
func onBus(s string) replica.Event {
	words := strings.Fields(s)
	e := replica.Event{Type: wire.Updated}
	switch words[0] {
	case "none":
		return replica.Event{}
	case "deleted":
		e.Type, words = wire.Deleted, words[1:]
	case "truncated":
		e.Truncated, words = true, words[1:]
	}
	e.UID, e.Version = words[0], words[1]
	data := strings.Join(words[2:], " ")
	e.Digest = normal.DigestOf("whole " + data)
	if e.Truncated {
		e.Digest = normal.DigestOf("partial " + data)
	}
	return e
}

// TestJudge verifies the verdict after a series of observations of one object, one second apart,
// with a settle time of 2.5 s.
func TestJudge(t *testing.T) {
	type look struct{ cluster, bus string } // cluster may be "first; second"
	for _, tc := range []struct {
		name  string
		looks []look
		want  verdict     // of the last look; before it, undecided
		kind  report.Kind // if wrong
	}{
		{"arrived", []look{{"A 5", "none"}, {"A 5", "A 5"}}, fine, ""},
		{"deleted", []look{{"none 9", "A 5"}, {"none 9", "deleted A 7"}}, fine, ""},
		{"deleted and purged", []look{{"none 9", "A 5"}, {"none 9", "none"}}, fine, ""},
		{"truncated", []look{{"A 5 x", "truncated A 5 x"}}, fine, ""},

		{"never there", []look{{"A 5", "none"}, {"A 5", "none"}, {"A 5", "none"}, {"A 5", "none"}}, wrong, report.Missing},
		{"only a delete", []look{{"A 5", "deleted A 5"}, {"A 5", "deleted A 5"}, {"A 5", "deleted A 5"}, {"A 5", "deleted A 5"}}, wrong, report.Missing},
		{"only an older uid's delete", []look{{"B 5", "deleted A 4"}, {"B 5", "deleted A 4"}, {"B 5", "deleted A 4"}, {"B 5", "deleted A 4"}}, wrong, report.Missing},
		{"a delete that never was, in a version that never was", []look{{"A 5", "deleted A 6"}, {"A 5", "deleted A 6"}, {"A 5", "deleted A 6"}, {"A 5", "deleted A 6"}}, wrong, report.Missing},
		{"behind", []look{{"A 5", "A 4"}, {"A 5", "A 4"}, {"A 5", "A 4"}, {"A 5", "A 4"}}, wrong, report.Stale},
		{"behind a cluster that moves on", []look{{"A 5", "A 4"}, {"A 6", "A 4"}, {"A 7", "A 4"}, {"A 8", "A 4"}}, wrong, report.Stale},
		{"another uid", []look{{"B 5", "A 4"}, {"B 5", "A 4"}, {"B 5", "A 4"}, {"B 5", "A 4"}}, wrong, report.Stale},
		{"not deleted", []look{{"none 9", "A 5"}, {"none 10", "A 5"}, {"none 11", "A 5"}, {"none 12", "A 5"}}, wrong, report.Extra},
		{"from the future", []look{{"A 5", "A 50"}, {"A 5", "A 50"}, {"A 6", "A 50"}, {"A 6", "A 50"}}, wrong, report.Stale},
		{"invented in the future", []look{{"none 9", "X 50"}, {"none 9", "X 50"}, {"none 10", "X 50"}, {"none 10", "X 50"}}, wrong, report.Extra},
		{"other data", []look{{"A 5 x", "A 5 y"}, {"A 5 x", "A 5 y"}, {"A 5 x", "A 5 y"}, {"A 5 x", "A 5 y"}}, wrong, report.Different},
		{"other data, then right", []look{{"A 5 x", "A 5 y"}, {"A 6 x", "A 5 y"}, {"A 6 x", "A 6 x"}}, fine, ""},
		{"versions that are no numbers", []look{{"A x", "A y"}, {"A x", "A y"}, {"A x", "A y"}, {"A x", "A y"}}, wrong, report.Stale},
		{"not served any more", []look{{"none ", "A 5"}, {"none ", "A 5"}, {"none ", "A 5"}, {"none ", "A 5"}}, wrong, report.Extra},

		{"ahead of the first look", []look{{"A 5; A 6", "A 6"}}, fine, ""},
		{"created after the first look", []look{{"none 5; A 6", "A 6"}}, fine, ""},
		{"deleted after the first look", []look{{"A 5; none 9", "deleted A 6"}}, fine, ""},
		{"between two looks", []look{{"A 5; A 7", "A 6"}, {"A 7; A 9", "A 8"}, {"A 9; A 11", "A 10"}, {"A 11; A 13", "A 12"}}, inMotion, ""},
		{"between two looks, then stuck", []look{{"A 5; A 7", "A 6"}, {"A 7; A 9", "A 8"}, {"A 9", "A 8"}, {"A 11", "A 8"}, {"A 13", "A 8"}}, wrong, report.Stale},
		{"the state of the first look, and past it", []look{{"A 5 x; A 7 x", "A 5 x"}}, fine, ""}, // in this case, verify does not read the cluster a second time
		{"recreated all the time", []look{{"A 5; B 9", "none"}, {"B 9; C 12", "deleted B 10"}, {"C 12; D 15", "deleted C 13"}, {"D 15; E 18", "deleted D 16"}}, inMotion, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &candidate{}
			now := someTime
			var recent []replica.Event
			for i, l := range tc.looks {
				first, second, twice := strings.Cut(l.cluster, "; ")
				if strings.HasSuffix(first, " ") {
					first += "-"
				}
				g := observation{first: present(first), bus: onBus(l.bus)}
				if !g.first.present && g.first.version == "-" {
					g.first.version = ""
				}
				g.cluster = g.first
				if twice {
					g.cluster = present(second)
				}
				g.bus.Position = uint64(i + 1)
				recent = append(recent, g.bus)
				g.recent = recent
				if g.bus.UID != "" && !g.bus.Live() {
					g.lastDeleted = g.bus.Position
				}
				want := undecided
				if i == len(tc.looks)-1 {
					want = tc.want
				}
				if got := c.judge(g, now, 2500*time.Millisecond); got != want {
					t.Fatalf("look %d: got verdict %d, want %d", i+1, got, want)
				}
				now = now.Add(time.Second)
			}
			if tc.want != wrong {
				return
			}
			if p := c.problem(web); p.Kind != tc.kind || p.Detail == "" || p.Name != "web" {
				t.Errorf("got %+v, want %s", p, tc.kind)
			}
		})
	}
}

// simulation is one object in a cluster and on a bus, with a forwarder that follows the cluster.
// The cluster and the bus are lists of states with their times in milliseconds.
type simulation struct {
	cluster []clusterAt
	bus     []busAt
}

type clusterAt struct {
	at    int
	state sighting
}

type busAt struct {
	at    int
	event replica.Event
}

// simulate runs an object until a time in milliseconds. forward may change an event of the
// forwarder, and returns whether the event is sent.
func simulate(r *rand.Rand, until, changeEvery, lag, deletes int, forward func(at int, e *replica.Event) bool) simulation {
	var s simulation
	version, uid := 100, 0
	for at := 0; at < until; at += 1 + r.IntN(2*changeEvery) {
		version += 1 + r.IntN(3)
		now := sighting{version: fmt.Sprint(version)}
		exists := len(s.cluster) > 0 && s.cluster[len(s.cluster)-1].state.present
		switch {
		case exists && r.IntN(deletes) == 0: // deleted
		default:
			if !exists && r.IntN(4) > 0 { // sometimes a selector selects the same object again
				uid++
			}
			now.present, now.uid, now.whole = true, fmt.Sprint("u", uid), normal.DigestOf(fmt.Sprint("data", version))
		}
		s.cluster = append(s.cluster, clusterAt{at, now})
	}
	position := uint64(0)
	var last replica.Event
	send := func(at int, e replica.Event) {
		if !forward(at, &e) {
			return
		}
		position++
		e.Position, last = position, e
		s.bus = append(s.bus, busAt{at, e})
	}
	for at := 0; at < until+10*lag; at += 1 + r.IntN(lag) {
		seen := s.clusterAt(at - r.IntN(lag))
		if last.Live() && (!seen.present || seen.uid != last.UID) {
			send(at, replica.Event{Type: wire.Deleted, UID: last.UID, Version: last.Version})
		}
		if seen.present && !last.Live() && (last.Version == "" || replica.Newer(seen.version, last.Version)) ||
			seen.present && last.Live() && seen.uid == last.UID && replica.Newer(seen.version, last.Version) {
			send(at, replica.Event{Type: wire.Updated, UID: seen.uid, Version: seen.version, Digest: seen.whole})
		}
	}
	return s
}

func (s simulation) clusterAt(at int) sighting {
	var state sighting
	state.version = "100"
	for _, c := range s.cluster {
		if c.at <= at {
			state = c.state
		}
	}
	return state
}

// busAt returns the last event at a time, and all events since another time.
func (s simulation) busAt(at, since int) (last replica.Event, recent []replica.Event, lastDeleted uint64) {
	for _, b := range s.bus {
		if b.at > at {
			break
		}
		if b.at < since {
			recent = nil
		}
		last = b.event
		recent = append(recent, last)
		if last.Type == wire.Deleted {
			lastDeleted = last.Position
		}
	}
	return last, recent, lastDeleted
}

// look judges the object, beginning at the time start, until it reaches a verdict.
func (s simulation) look(r *rand.Rand, returns bool, start, settle int) (verdict, *candidate) {
	c := &candidate{returns: returns}
	for now := start; ; now += 1 + r.IntN(50) {
		g := observation{first: s.clusterAt(now)}
		now += r.IntN(10)
		g.bus, g.recent, g.lastDeleted = s.busAt(now, start)
		g.cluster = g.first
		if isAhead(g.bus, g.first) {
			now += r.IntN(10)
			g.cluster = s.clusterAt(now)
		}
		if v := c.judge(g, someTime.Add(time.Duration(now)*time.Millisecond), time.Duration(settle)*time.Millisecond); v != undecided {
			return v, c
		}
	}
}

const (
	simulations   = 400
	simulatedTime = 4000
	simulatedLook = 1000
	settleTime    = 1000
)

// TestJudgeHealthy verifies that the verdict on a working forwarder is never wrong, whatever the
// object does.
func TestJudgeHealthy(t *testing.T) {
	counts := map[verdict]int{}
	for seed := range uint64(simulations) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := simulate(r, simulatedTime, 1+r.IntN(200), 2+r.IntN(100), 2+r.IntN(50), func(int, *replica.Event) bool { return true })
		v, c := s.look(r, true, r.IntN(simulatedLook), settleTime)
		if v == wrong {
			t.Fatalf("seed %d: %+v", seed, c.problem(web))
		}
		counts[v]++
	}
	t.Logf("fine %d, in motion %d", counts[fine], counts[inMotion])
	if counts[inMotion] > simulations/100 {
		t.Errorf("%d of %d objects were in motion, want at most 1%%", counts[inMotion], simulations)
	}
}

// TestJudgeBroken_Slow verifies that verify finds a broken forwarder, unless the object has the state of
// the bus by chance.
func TestJudgeBroken_Slow(t *testing.T) {
	for name, breaks := range map[string]func(e *replica.Event) bool{
		"stuck":   func(*replica.Event) bool { return false },
		"no data": func(e *replica.Event) bool { e.Digest = normal.Digest{}; return true },
		"future":  func(e *replica.Event) bool { e.Version = plus(e.Version, 1_000_000); return true },
		"deletes": func(e *replica.Event) bool { e.Type, e.Version = wire.Deleted, plus(e.Version, -1); return true },
	} {
		t.Run(name, func(t *testing.T) {
			counts := map[verdict]int{}
			for seed := range uint64(simulations) {
				r := rand.New(rand.NewPCG(seed, 2))
				from := r.IntN(simulatedLook / 2)
				s := simulate(r, simulatedTime, 1+r.IntN(200), 2+r.IntN(100), 2+r.IntN(50), func(at int, e *replica.Event) bool { return at < from || breaks(e) })
				v, c := s.look(r, name != "deletes", simulatedLook, settleTime)
				counts[v]++
				switch {
				case v == fine && !c.cluster.present && !c.bus.Live(): // the object is absent on both sides at this moment
				case v == fine && isSame(c.cluster, c.bus) && sameData(c.cluster, c.bus): // the object has not changed since the forwarder broke
				case v == inMotion && name == "no data": // nothing was compared, as the report says
				case v == inMotion && name == "deletes" && c.bus.UID != c.cluster.uid: // the last delete may have been right for a moment
				case v != wrong:
					t.Fatalf("seed %d: verdict %d on cluster %+v and bus %+v", seed, v, c.cluster, c.bus)
				}
			}
			t.Logf("fine %d, in motion %d, wrong %d", counts[fine], counts[inMotion], counts[wrong])
			if counts[inMotion] > simulations/50 || counts[wrong] < simulations/3 {
				t.Errorf("of %d broken forwarders, %d were found wrong and %d in motion", simulations, counts[wrong], counts[inMotion])
			}
		})
	}
}

package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Branch is a part of a history. Its seed determines which actions are frequent, and the choices after
// a number of steps of the history.
type Branch struct {
	After int // steps; 0 for the first branch
	Seed  uint64
}

// Path identifies a history by its branches. The first branch also determines the world.
type Path []Branch

// Seed returns the path of a history that has only one branch.
func Seed(seed uint64) Path { return Path{{Seed: seed}} }

// String returns a text such as "17/120:4711", which [ParsePath] reads: seed 17, and seed 4711 after
// 120 steps.
func (p Path) String() string {
	var text strings.Builder
	for _, b := range p {
		if b.After > 0 {
			fmt.Fprintf(&text, "/%d:", b.After)
		}
		text.WriteString(strconv.FormatUint(b.Seed, 10))
	}
	return text.String()
}

// ParsePath is the inverse of [Path.String].
func ParsePath(text string) (Path, error) {
	var p Path
	for n, part := range strings.Split(text, "/") {
		var b Branch
		after, seed, isLater := strings.Cut(part, ":")
		if !isLater {
			after, seed = "0", part
		}
		var err error
		if b.After, err = strconv.Atoi(after); err == nil {
			b.Seed, err = strconv.ParseUint(seed, 10, 64)
		}
		if err != nil || isLater != (n > 0) || n > 0 && b.After <= p[n-1].After {
			return nil, fmt.Errorf("path %q: want a seed, or branches such as 17/120:4711", text)
		}
		p = append(p, b)
	}
	return p, nil
}

// lastSeed returns the seed of the last branch.
func (p Path) lastSeed() uint64 { return p[len(p)-1].Seed }

// withLast returns a copy of the path with another last seed.
func (p Path) withLast(seed uint64) Path {
	p = slices.Clone(p)
	p[len(p)-1].Seed = seed
	return p
}

// explorer chooses the histories of a range. A quarter of them are new. The others branch off from an
// earlier history at the last new situation that it reached. So the explorer reaches a situation that
// takes several coincidences one coincidence at a time.
type explorer struct {
	mu   sync.Mutex
	rng  *rand.Rand
	seen map[situation]struct{}
	// branches are paths up to the last new situation of a history. The last seed of each is 0.
	branches []Path
	next     int // the entry of branches that is replaced next
}

const (
	maxPaths    = 4096 // that the explorer remembers
	maxBranches = 12   // of a path
)

func newExplorer(seed uint64) *explorer {
	return &explorer{rng: rand.New(rand.NewPCG(seed, 0x6578706c)), seen: map[situation]struct{}{}}
}

// choose returns the path of the next history: the path of a new one, or a branch with its last seed.
func (e *explorer) choose(path Path) Path {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.branches) == 0 || e.rng.IntN(4) == 0 {
		return path
	}
	return e.branches[e.rng.IntN(len(e.branches))].withLast(path.lastSeed())
}

// learn records the situations that a history has reached, with the number of steps before each.
func (e *explorer) learn(path Path, reached map[situation]int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := 0
	for s, step := range reached {
		if _, ok := e.seen[s]; !ok {
			e.seen[s] = struct{}{}
			last = max(last, step)
		}
	}
	if last <= path[len(path)-1].After || len(path) == maxBranches {
		return
	}
	path = append(slices.Clone(path), Branch{After: last})
	if len(e.branches) < maxPaths {
		e.branches = append(e.branches, path)
		return
	}
	e.branches[e.next] = path
	e.next = (e.next + 1) % maxPaths
}

// situation describes what the cluster, the bus, and a forwarder have of an object, without versions
// and UIDs.
type situation struct {
	selection selection
	spaces    bool // the namespace can change

	exists, label bool // in the cluster
	onBus         shownState
	isOnBus       bool // the bus shows the UID that the cluster has

	watching, isCovered, epochIsDue bool
	queued                          bool // a change is on its way to the indexer
	notes                           int  // changes on their way to the handler, at most 3
	indexed, unselected             bool // in the indexer
	isIndexed                       bool // the indexer has the UID of the cluster
	isPublished                     bool // the indexer and the bus have the same version

	acked                 shownState // in the ledger
	isAcked               bool       // the ledger has the position of the bus
	tombstones            int        // at most 3
	ofCurrent             bool       // a tombstone has the UID of the cluster
	deselected, confirmed bool       // the fields of a tombstone
	attempted             bool

	working, reconciling bool
	sent                 bool  // a request of the forwarder is in flight
	stage                stage // of that request
	late                 bool  // a request that nobody waits for is in flight
}

// shownState is what an event shows of its object.
type shownState uint8

const (
	showsNothing shownState = iota // there is no event
	showsLive
	showsRemoval
	isNotOurs // a foreign event
)

func shownBy(a event.Acked) shownState {
	switch {
	case a.Foreign:
		return isNotOurs
	case a.Live():
		return showsLive
	case a.Deleted:
		return showsRemoval
	}
	return showsNothing
}

// noteSituations records the situations of all objects that are reached for the first time.
func (w *world) noteSituations() {
	for _, p := range w.processes {
		if p == nil || !p.loaded {
			continue
		}
		for object := range w.objects {
			s := w.situationOf(p, object)
			if _, ok := w.reached[s]; !ok {
				w.reached[s] = w.steps
			}
		}
	}
}

func (w *world) situationOf(p *process, object int) situation {
	k, is, last, r := keyOf(object), w.cluster.objects[object], w.oracle.shown(object), &p.reflector
	acked, uid := p.acked.Get(k), ""
	if is.exists() {
		uid = uidOf(is.uid)
	}
	s := situation{
		selection: p.config.selection, spaces: w.spaces,
		exists: is.exists(), label: is.label, onBus: shownBy(last.Acked), isOnBus: last.UID == uid,
		watching: r.watching, isCovered: p.spaces.isCovered, epochIsDue: p.epochIsDue(),
		acked: shownBy(acked), isAcked: acked.Position == last.Position,
		working: p.keys[object].working, reconciling: p.coroutine(reconciler) != nil,
	}
	for _, b := range r.queue {
		s.queued = s.queued || slices.ContainsFunc(b.deltas, func(d delta) bool { return d.object == object })
	}
	for _, n := range r.notes {
		if n.object == object {
			s.notes = min(s.notes+1, 3)
		}
	}
	if o := r.indexer[object]; o != nil {
		s.indexed, s.unselected, s.isIndexed, s.isPublished = true, o.Unselected, string(o.UID) == uid, o.ResourceVersion == last.ResourceVersion
	}
	var v event.View
	p.ledger.Describe(k, &v)
	s.attempted, s.tombstones = v.Attempted != "", min(len(v.Tombstones), 3)
	for _, t := range v.Tombstones {
		s.ofCurrent, s.deselected, s.confirmed = s.ofCurrent || t.UID == uid, s.deselected || t.Deselected, s.confirmed || t.Confirmed
	}
	for _, f := range w.flights {
		switch {
		case f.object != object:
		case f.sender == p && !s.sent:
			s.sent, s.stage = true, f.stage
		case f.sender == nil:
			s.late = true
		}
	}
	return s
}

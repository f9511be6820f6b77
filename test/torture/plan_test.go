package torture

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// plan contains everything that a seed decides.
type plan struct {
	seed     uint64
	settings settings
	faults   []string // names of kinds
	phases   []phase
	survivor int // the forwarder that runs at the end
}

// settings are the settings of the forwarder that plans vary.
type settings struct {
	configuration                 // of the first run
	later         []configuration // of later runs

	sink       sink
	tells      bool   // the forwarder publishes a deselected event when an object leaves the selection
	byTeam     bool   // select namespaces with the label of the team, which operations add and remove
	crowd      int    // number of additional namespaces with the label
	moons      bool   // the workload also uses a third custom resource, which is defined late
	other      string // a resource that not every API server serves, "" for none
	second     bool   // a second API server runs
	production bool   // use the intervals of a production system
	history    int
	workers    int
	inFlight   int
	resync     time.Duration
	refresh    time.Duration // of the checkpoint
	retention  time.Duration // of deletes
	points     time.Duration // between consistency points, 0 for none
	kafka      kafkaSettings
	replicas   int // forwarders with leader election; 0 for none
	foreign    bool
	cluster    int  // servers in the cluster of the bus, 0 for a single server
	former     bool // the cluster of the bus starts with its former release
}

// phase is a batch of changes, and the faults during it.
type phase struct {
	ops  []op
	acts []act
}

// act is one action of a fault.
type act struct {
	after int // number of operations in the phase that must be done before the act
	do    verb
	node  int    // the forwarder
	arg   string // depends on the verb
	n     int
}

// verb names an action, which execute performs.
type verb string

func (a act) String() string {
	text := fmt.Sprintf("after %d: %s", a.after, a.do)
	if slices.Contains(verbsOfNodes, a.do) {
		text += fmt.Sprintf(" forwarder %d", a.node)
	}
	if a.arg != "" {
		text += " " + a.arg
	}
	if a.n != 0 {
		text += fmt.Sprintf(" %d", a.n)
	}
	return text
}

func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s\nsettings: %+v\n", p.seed, strings.Join(p.faults, ", "), p.settings)
	for n, ph := range p.phases {
		fmt.Fprintf(&b, "phase %d:\n", n)
		for _, a := range ph.acts {
			fmt.Fprintf(&b, "  %s\n", a)
		}
		var ops []string
		for _, o := range ph.ops {
			ops = append(ops, o.String())
		}
		fmt.Fprintf(&b, "  operations: %s\n", strings.Join(ops, "; "))
	}
	fmt.Fprintf(&b, "forwarder %d is left\n", p.survivor)
	return b.String()
}

// generator creates a plan. It has separate random sources for parts that were added later, so that
// the older decisions of a seed stay the same.
type generator struct {
	*rand.Rand
	shapes  *rand.Rand // for projections and filters
	recent  *rand.Rand // for recentKinds and intervals
	foreign *rand.Rand // for the foreign writer
	plan    *plan
	taken   map[string]map[int]bool // by the name in [kind.uses], the phases in which a fault uses it
	calm    int                     // from this phase on, operations only create and delete: see the kind restored
}

// The sizes of a plan
const (
	basePhases   = 5
	leastOps     = 30
	mostOps      = 80
	perSeed      = 3 // faults of a seed in the first round
	manyMessages = 100_000
)

// newPlan creates the plan of a seed. The seeds of the first round, 1 to [round.firstRound],
// together have every kind of fault once. Each later seed has the next kind in turn and up to two
// random kinds. If only isn't "", it names the only kind in the plan.
func newPlan(of round, seed uint64, only string) *plan {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x6b757265)), shapes: rand.New(rand.NewPCG(seed, 0x7368)), recent: rand.New(rand.NewPCG(seed, 0x7265)), foreign: rand.New(rand.NewPCG(seed, 0x666f)), plan: &plan{seed: seed}, taken: map[string]map[int]bool{}, calm: math.MaxInt}
	g.plan.settings.sink, g.plan.settings.replicas, g.plan.settings.foreign, g.plan.settings.cluster = of.sink, of.replicas, of.foreign, of.cluster
	g.settings()
	chosen := g.choose(of, seed)
	if only != "" {
		chosen = g.named(of, only)
	}
	g.plan.phases = make([]phase, basePhases)
	g.plan.phases[0].acts = []act{{do: start, after: g.IntN(leastOps)}}
	for n := 1; n < of.replicas; n++ {
		g.plan.phases[0].acts = append(g.plan.phases[0].acts, act{do: start, node: n, after: g.IntN(leastOps)})
	}
	if g.IntN(3) > 0 {
		g.plan.phases[1].acts = []act{{do: awaitLog, arg: synced}}
	}
	for _, k := range chosen {
		g.insert(k)
	}
	usual := g.Rand
	g.Rand = g.recent
	if k, ok := g.chooseRecent(of, seed, chosen); ok && only == "" {
		g.insert(k)
		chosen = append(chosen, k)
	}
	g.periods(chosen)
	g.Rand = usual
	if of.foreign {
		g.plan.settings.refresh = frequently
		for n := range g.plan.phases {
			g.forgeries(n)
		}
	}
	for n := range g.plan.phases {
		g.fill(n)
	}
	return g.plan
}

// named returns the kinds with this name.
func (g *generator) named(of round, name string) []kind {
	return slices.DeleteFunc(of.allKinds(), func(k kind) bool { return k.name != name })
}

// insert adds a kind of fault to the plan.
func (g *generator) insert(k kind) {
	g.plan.faults = append(g.plan.faults, k.name)
	from, to := g.window(k)
	k.add(g, from, to)
}

// chooseRecent returns the next recent kind that can be combined with the chosen ones. Each of the first
// seeds, as many as there are recent kinds, has a recent kind. After them, every third seed has none. With
// replicas, only every third of the first seeds has a recent kind, and no later seed has one.
func (g *generator) chooseRecent(of round, seed uint64, chosen []kind) (kind, bool) {
	kinds := of.recentKinds()
	if of.replicas > 0 && seed%3 > 0 || seed > uint64(len(kinds)) && seed%3 == 0 {
		return kind{}, false
	}
	for n := range kinds {
		k := kinds[(int(seed)-1+n)%len(kinds)]
		if !slices.ContainsFunc(chosen, k.conflicts) {
			return k, true
		}
	}
	return kind{}, false
}

// periods sets the intervals. Half of the seeds use the intervals of a production system, so that a
// refresh doesn't repair a change that a forwarder missed. If only a refresh can find the effect of a
// fault, the forwarders refresh every second.
func (g *generator) periods(chosen []kind) {
	s := &g.plan.settings
	s.production = g.IntN(2) == 0
	refreshed := slices.ContainsFunc(chosen, func(k kind) bool { return k.refreshed })
	if refreshed {
		s.refresh = frequently
	}
	if !s.production {
		if !s.tells && slices.ContainsFunc(s.later, byLabelsOrFields) {
			s.refresh = frequently
		}
		return
	}
	s.resync = productionPeriod
	if !refreshed {
		s.refresh = productionPeriod
		s.tells = s.tells || byLabelsOrFields(s.configuration) || slices.ContainsFunc(s.later, byLabelsOrFields)
	}
}

// The intervals between refreshes of the checkpoint. The production interval is the default of
// KUBERELAY_CHECKPOINT_REFRESH and KUBERELAY_RESYNC_PERIOD.
const (
	productionPeriod = 10 * time.Minute
	frequently       = time.Second
)

func (g *generator) choose(of round, seed uint64) []kind {
	var chosen []kind
	kinds := of.kinds()
	if seed >= 1 && seed <= of.firstRound() && len(of.turns()) == 0 {
		first := int(seed-1) * perSeed
		chosen = append(chosen, kinds[first:min(first+perSeed, len(kinds))]...)
	} else {
		turns := of.turns()
		if len(turns) == 0 {
			turns = kinds
		}
		chosen = append(chosen, turns[int(seed%uint64(len(turns)))])
		for range g.IntN(perSeed) {
			k := kinds[g.IntN(len(kinds))]
			if k.slow && g.IntN(3) > 0 {
				continue // a slow kind takes many seconds, and enough seeds have it
			}
			if !slices.ContainsFunc(chosen, func(c kind) bool { return c.name == k.name || k.conflicts(c) }) {
				chosen = append(chosen, k)
			}
		}
	}
	g.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	return chosen
}

// settings draws the settings that no fault decides.
func (g *generator) settings() {
	s := &g.plan.settings
	switch g.IntN(10) {
	case 0, 1:
		s.namespaces = true
	case 2, 3:
		s.labels = true
	}
	g.teamSettings()
	s.structured = g.IntN(5) == 0
	s.topic = topicName
	s.shaped, s.asChange = g.shapes.IntN(2) == 0, g.shapes.IntN(3) == 0
	s.history = []int{1, 8, 8, manyMessages, manyMessages, manyMessages}[g.IntN(6)]
	s.workers = []int{1, 4, 16}[g.IntN(3)]
	s.inFlight = []int{1, 8, 4096, 4096}[g.IntN(4)]
	s.resync = []time.Duration{time.Second, 10 * time.Minute, 10 * time.Minute}[g.IntN(3)]
	s.refresh, s.retention, s.points = 10*time.Minute, 24*time.Hour, 500*time.Millisecond
	if s.labels {
		// Only reconciliation finds the delete of an object that had left the selection.
		s.refresh = time.Second
	}
	if s.sink == onKafka {
		s.kafka = g.kafkaSettings()
		s.kafka.idempotent = s.kafka.idempotent || s.replicas > 0 // with replicas but without idempotence, no promise remains to check
	}
}

// window reserves phases for a kind, so that no other fault uses the same parts in these phases.
func (g *generator) window(k kind) (from, to int) {
	if !k.first {
		from, to = g.draw(k)
		for tries := 0; !g.free(k, from, to); tries++ {
			if tries == 20 { // add phases for this kind alone
				from, to = len(g.plan.phases), len(g.plan.phases)
				g.plan.phases = append(g.plan.phases, phase{})
				if k.long {
					to++
					g.plan.phases = append(g.plan.phases, phase{})
				}
				break
			}
			from, to = g.draw(k)
		}
	}
	for _, what := range k.uses {
		if g.taken[what] == nil {
			g.taken[what] = map[int]bool{}
		}
		for n := from; n <= to; n++ {
			g.taken[what][n] = true
		}
	}
	return from, to
}

// draw draws phases for a kind.
func (g *generator) draw(k kind) (from, to int) {
	from = 1 + g.IntN(basePhases-2)
	if k.long {
		return from, from + 1
	}
	return from, from + g.IntN(2)
}

func (g *generator) free(k kind, from, to int) bool {
	for _, what := range k.uses {
		for n := from; n <= to; n++ {
			if g.taken[what][n] {
				return false
			}
		}
	}
	return true
}

// add puts acts into a phase, in order, each after a number of operations.
func (g *generator) add(n int, acts ...act) {
	ph := &g.plan.phases[n]
	after := g.IntN(leastOps / 2)
	for _, a := range acts {
		a.after = after
		ph.acts = append(ph.acts, a)
		after += g.IntN(leastOps/2) + 1
	}
}

// fill draws the operations of a phase and sorts its acts.
func (g *generator) fill(n int) {
	ph := &g.plan.phases[n]
	slices.SortStableFunc(ph.acts, func(a, b act) int { return a.after - b.after })
	for range leastOps + g.IntN(mostOps-leastOps) {
		ph.ops = append(ph.ops, g.op(n >= g.calm))
	}
	g.otherOps(ph)
}

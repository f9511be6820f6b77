package simulate

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// maxProcesses is the maximum number of simultaneous forwarders: a leader, and a former leader that
// hasn't noticed that it lost the leadership.
const maxProcesses = 2

// world is the state of one history: the models, the forwarders, and everything that happened.
type world struct {
	sink    Sink
	rng     *rand.Rand
	weights [kinds]int
	setup
	config config

	variation variation // of a story, empty for none

	now       time.Time
	cluster   cluster
	bus       bus
	brokers   brokers // empty on NATS
	flights   []*flight
	processes [maxProcesses]*process
	oracle    oracle

	offers []offer
	ended  bool // the faults have ended
	plain  bool // the forwarder converges without another read of the bus
	trace  []action
	steps  int
	stores int // events that the bus has stored
	reads  int // reads of the bus and of the API server
	points int // consistency points that the bus has stored

	path    Path
	reached map[situation]int // the step at which a forwarder first reached a situation; nil if nobody asks

	rendered map[rendering]*event.Object
	story    *[]string // the log of the history, nil for none
	wrong    *Violation
}

// Violation is a broken promise.
type Violation struct {
	Rule string // the promise
	Text string // what happened
}

func (v *Violation) Error() string { return v.Rule + ": " + v.Text }

// violate ends the history with a violation. Only the first one counts.
func (w *world) violate(rule, format string, args ...any) {
	if w.wrong == nil {
		w.wrong = &Violation{rule, fmt.Sprintf(format, args...)}
		w.tell("  WRONG: %s", w.wrong)
	}
}

func (w *world) tell(format string, args ...any) {
	if w.story != nil {
		*w.story = append(*w.story, fmt.Sprintf(format, args...))
	}
}

// Sink is a kind of bus.
type Sink string

// The sinks.
const (
	NATS  Sink = "nats"
	Kafka Sink = "kafka"
)

func newRNG(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x6b756265)) }

// setup contains the parameters that a history starts with.
type setup struct {
	objects       int  // number of names that the history uses
	writers       int  // number of forwarders that write at once
	foreign       bool // a foreign writer also publishes
	elects        bool // one forwarder at a time leads, and another one can stand by
	spaces        bool // the namespace and its Role change, and a configuration can select namespaces
	perSubject    int  // maximum number of messages per subject, on NATS
	configuration int  // of the first forwarder; see configOf

	// On Kafka
	tombstones             bool // a tombstone follows each delete, and the event topic is compacted
	partitions, checkpoint int  // number of partitions of the event topic and of the checkpoint topic
}

// anySetup chooses a random setup.
func anySetup(sink Sink, rng *rand.Rand) setup {
	s := setup{objects: []int{1, 1, 2, len(objectNames)}[rng.IntN(4)], writers: []int{1, 1, 2}[rng.IntN(3)]}
	s.foreign = sink == NATS && s.writers == 1 && rng.IntN(4) == 0 // the tests of package takeover cover foreign records
	s.elects = s.writers == 1 && rng.IntN(3) == 0
	s.spaces = rng.IntN(3) == 0
	s.perSubject = []int{1, 2, 8}[rng.IntN(3)]
	c := config{selection: selection([]int{0, 0, 1, 2}[rng.IntN(4)])}
	c.project, c.change, c.publishDeselected = rng.IntN(3) == 0, rng.IntN(3) == 0, rng.IntN(2) == 0
	if s.spaces {
		c.scope = scope(rng.IntN(int(scopes)))
	}
	s.configuration = c.number()
	s.tombstones, s.partitions, s.checkpoint = rng.IntN(2) == 0, 1+rng.IntN(2), 1+rng.IntN(2)
	return s
}

// newWorld creates the world for a path. One of eight histories follows a story.
func newWorld(sink Sink, path Path) *world {
	rng := newRNG(path[0].Seed)
	if stories := storiesOn(sink); len(stories) > 0 && rng.IntN(8) == 0 {
		s := stories[rng.IntN(len(stories))]
		return s.setup.world(sink, path, rng, s.variation(rng))
	}
	return anySetup(sink, rng).world(sink, path, rng, variation{})
}

// world creates a world.
func (s setup) world(sink Sink, path Path, rng *rand.Rand, v variation) *world {
	w := &world{sink: sink, path: path, setup: s, rng: rng, variation: v, now: time.Unix(1_700_000_000, 0), rendered: map[rendering]*event.Object{}}
	w.oracle.init(w)
	w.config = configOf(s.configuration)
	w.plain = s.writers == 1 && !s.foreign && !s.elects
	w.cluster.spaces, w.cluster.role = []spaceChange{{after: space{exists: true, label: true}}}, true
	w.bus.perSubject = s.perSubject
	if w.isKafka() {
		w.brokers.tombstones = s.tombstones
		w.brokers.events = newLogs[logged](s.partitions)
		w.brokers.checkpoint = newLogs[takeover.Write](s.checkpoint)
	}
	w.drawWeights()
	w.start(0)
	return w
}

// drawWeights chooses how frequent the actions are.
func (w *world) drawWeights() {
	// Each history enables only some of the faults, so that one fault doesn't always hide another.
	for k, info := range infoOf {
		w.weights[k] = info.weight
		if info.fault && kind(k) != createObject && kind(k) != startProcess {
			w.weights[k] *= []int{0, 0, 1, 1, 2, 4}[w.rng.IntN(6)]
		}
	}
	if w.spaces {
		w.weights[restore] = 0 // a restore can hide changes of the namespace from its watch: see docs/delivery.md
	}
	if w.plain && w.rng.IntN(3) == 0 { // exclude the actions that clear w.plain or make the forwarder list or read again
		for _, k := range []kind{killProcess, reconfigure, restore, redefine, storeLate, disconnect, stopBus, expire, resync, recreate} {
			w.weights[k] = 0
		}
	}
	if w.isKafka() {
		w.weights[proceed] *= 4 // a takeover sends many requests
	}
	// In some histories, messages stay in flight for a long time. In others, they arrive at once.
	for _, k := range []kind{show, showSpace, index, notify, store, answer, work, proceed, reconcileDue, timeOut} {
		w.weights[k] *= []int{1, 2, 4}[w.rng.IntN(3)]
	}
	for _, a := range w.variation.actions {
		w.weights[a.kind] = max(w.weights[a.kind], 1)
	}
}

// rendering contains everything that determines how an informer caches a state.
type rendering struct {
	object  int
	state   state
	content int
	form    form
}

func (w *world) render(object int, s state, f form) *event.Object {
	of := rendering{object, s, w.cluster.content, f}
	o, ok := w.rendered[of]
	if !ok {
		o = render(object, s, of.content, f)
		w.rendered[of] = o
	}
	return o
}

// run performs the given number of steps, ends the faults, and checks the bus.
func (w *world) run(steps int) {
	later := w.path[1:]
	if len(later) > 0 {
		steps = max(steps, later[len(later)-1].After+steps/2)
	}
	for range steps {
		if len(later) > 0 && w.steps == later[0].After {
			w.branch(later[0].Seed)
			later = later[1:]
		}
		if w.variation.isOver() || !w.step() || w.wrong != nil {
			break
		}
		if w.reached != nil {
			w.noteSituations()
		}
	}
	w.settle()
}

// branch continues the history with other choices.
func (w *world) branch(seed uint64) {
	w.rng = newRNG(seed)
	w.drawWeights()
}

// step performs the next action of the story, or a random possible action.
func (w *world) step() bool {
	w.findOffers()
	if a, ok := w.nextOfStory(); ok {
		w.do(a)
		return true
	}
	total := 0
	for _, o := range w.offers {
		total += w.weights[o.kind]
	}
	if total == 0 {
		return false
	}
	n := w.rng.IntN(total)
	for _, o := range w.offers {
		if n -= w.weights[o.kind]; n < 0 {
			o.arg = uint8(w.rng.IntN(o.variants))
			w.do(o.action)
			return true
		}
	}
	panic("no action")
}

// replay performs the actions of a trace, and skips those that are no longer possible. Then it ends
// the faults and checks the bus if settles is true.
func (w *world) replay(trace []action, settles bool) {
	for _, a := range trace {
		if w.findOffers(); w.isPossible(&a) {
			w.do(a)
		}
		if w.wrong != nil {
			return
		}
	}
	if settles {
		w.settle()
	}
}

func (w *world) isPossible(a *action) bool {
	if a.kind == endFaults {
		return !w.ended
	}
	for _, o := range w.offers {
		if o.kind == a.kind && o.slot == a.slot && o.object == a.object {
			a.arg = min(a.arg, uint8(o.variants-1))
			return true
		}
	}
	return false
}

package simulate

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Steps is the number of steps in a history before its faults end.
const Steps = 200

// History is the result of one path.
type History struct {
	Sink   Sink
	Path   Path
	Story  string // the name of the story that it follows, "" for none
	Steps  int    // including the steps after the faults end
	Wrong  *Violation
	trace  []action
	Events int // stored by the bus
}

// Run runs the history of a path.
func Run(sink Sink, path Path) History { return runTo(sink, path, nil) }

// runTo is like Run, and records the situations that the history reaches, unless reached is nil.
func runTo(sink Sink, path Path, reached map[situation]int) History {
	w := newWorld(sink, path)
	w.reached = reached
	w.run(Steps)
	h := History{Sink: sink, Path: path, Story: w.variation.story, Steps: w.steps, Events: w.stores, Wrong: w.wrong, trace: w.trace}
	w.close()
	return h
}

// Range is a range of histories to run.
type Range struct {
	Sink  Sink
	First Path          // the paths of the next histories differ in the last seed, which increases by 1
	Seeds uint64        // 0 for no limit
	Time  time.Duration // 0 for no limit
	Jobs  int           // parallel histories, 0 for the number of CPUs

	// Explore makes most histories branch off from earlier ones, where these reached a new situation.
	// With more than one job, the paths depend on the speed of the jobs.
	Explore bool
}

// Result is the result of a range of seeds.
type Result struct {
	Histories, Steps, Events int
	Failed                   *History // the failed history with the lowest last seed, nil if none failed
	After                    uint64   // number of histories up to Failed
}

// Run runs the histories of a range. It starts no history after one has failed.
func (r Range) Run() (result Result) {
	began, first := time.Now(), r.First.lastSeed()
	next, e := first, newExplorer(first)
	var mu sync.Mutex
	take := func() (seed uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if result.Failed != nil || r.Seeds > 0 && next >= first+r.Seeds || r.Time > 0 && time.Since(began) >= r.Time {
			return 0, false
		}
		next++
		return next - 1, true
	}
	var jobs sync.WaitGroup
	for range cmp.Or(r.Jobs, runtime.NumCPU()) {
		jobs.Go(func() {
			for seed, ok := take(); ok; seed, ok = take() {
				h := r.one(seed, e)
				mu.Lock()
				result.Histories, result.Steps, result.Events = result.Histories+1, result.Steps+h.Steps, result.Events+h.Events
				if h.Wrong != nil && (result.Failed == nil || seed < result.Failed.Path.lastSeed()) {
					result.Failed, result.After = &h, seed-first+1
				}
				mu.Unlock()
			}
		})
	}
	jobs.Wait()
	return result
}

// one runs one history, whose path has the given last seed.
func (r Range) one(seed uint64, e *explorer) History {
	path := r.First.withLast(seed)
	if !r.Explore {
		return Run(r.Sink, path)
	}
	path, reached := e.choose(path), map[situation]int{}
	h := runTo(r.Sink, path, reached)
	e.learn(path, reached)
	return h
}

// close stops the coroutines.
func (w *world) close() {
	for _, p := range w.processes {
		if p != nil {
			p.kill()
		}
	}
}

// replayOf replays a subset of the actions in a path's history.
func replayOf(sink Sink, path Path, trace []action, settles bool, story *[]string) *world {
	w := newWorld(sink, path)
	w.story = story
	for k := range w.weights { // each branch had its own
		w.weights[k] = 1
	}
	w.tell("%s", w.text(sink))
	w.replay(trace, settles)
	w.close()
	return w
}

// Shrink drops the actions that a failing history doesn't need to fail, and returns the story of
// the rest.
func Shrink(h History) []string {
	settles := h.Wrong.Rule == ruleConverge || h.Wrong.Rule == ruleRest
	fails := func(trace []action) bool {
		w := replayOf(h.Sink, h.Path, trace, settles, nil)
		return w.wrong != nil && w.wrong.Rule == h.Wrong.Rule
	}
	trace := h.trace
	if settles { // settle chooses the actions after the faults end
		trace = trace[:slices.IndexFunc(trace, func(a action) bool { return a.kind == endFaults })]
	}
	if !fails(trace) {
		return []string{"the history does not fail when it is replayed"}
	}
	for size := len(trace) / 2; size > 0; {
		dropped := false
		for from := 0; from+size <= len(trace); {
			shorter := append(append([]action(nil), trace[:from]...), trace[from+size:]...)
			if fails(shorter) {
				trace, dropped = shorter, true
				continue
			}
			from += size
		}
		if size == 1 && !dropped {
			break
		}
		if size > 1 {
			size /= 2
		}
	}
	var story []string
	replayOf(h.Sink, h.Path, trace, settles, &story)
	return story
}

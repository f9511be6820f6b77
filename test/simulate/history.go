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

// History is the result of one seed.
type History struct {
	Sink   Sink
	Seed   uint64
	Steps  int // including the steps after the faults end
	Wrong  *Violation
	trace  []action
	Events int // stored by the bus
}

// Run runs the history of a seed.
func Run(sink Sink, seed uint64) History {
	w := newWorld(sink, seed)
	w.run(Steps)
	h := History{Sink: sink, Seed: seed, Steps: w.steps, Events: w.stores, Wrong: w.wrong, trace: w.trace}
	w.close()
	return h
}

// Range is a range of seeds to run.
type Range struct {
	Sink  Sink
	First uint64
	Seeds uint64        // 0 for no limit
	Time  time.Duration // 0 for no limit
	Jobs  int           // parallel histories, 0 for the number of CPUs
}

// Result is the result of a range of seeds.
type Result struct {
	Histories, Steps, Events int
	Failed                   *History // the failed history with the lowest seed, nil if none failed
}

// Run runs the histories of a range. It starts no history after one has failed.
func (r Range) Run() (result Result) {
	began, next := time.Now(), r.First
	var mu sync.Mutex
	take := func() (seed uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if result.Failed != nil || r.Seeds > 0 && next >= r.First+r.Seeds || r.Time > 0 && time.Since(began) >= r.Time {
			return 0, false
		}
		next++
		return next - 1, true
	}
	var jobs sync.WaitGroup
	for range cmp.Or(r.Jobs, runtime.NumCPU()) {
		jobs.Go(func() {
			for seed, ok := take(); ok; seed, ok = take() {
				h := Run(r.Sink, seed)
				mu.Lock()
				result.Histories, result.Steps, result.Events = result.Histories+1, result.Steps+h.Steps, result.Events+h.Events
				if h.Wrong != nil && (result.Failed == nil || seed < result.Failed.Seed) {
					result.Failed = &h
				}
				mu.Unlock()
			}
		})
	}
	jobs.Wait()
	return result
}

// close stops the coroutines.
func (w *world) close() {
	for _, p := range w.processes {
		if p != nil {
			p.kill()
		}
	}
}

// replayOf replays a subset of the actions in a seed's history.
func replayOf(sink Sink, seed uint64, trace []action, settles bool, story *[]string) *world {
	w := newWorld(sink, seed)
	w.story = story
	w.tell("%d objects, %+v, the bus keeps %d messages of each", w.objects, w.config, w.bus.perSubject)
	w.replay(trace, settles)
	w.close()
	return w
}

// Shrink drops the actions that a failing history doesn't need to fail, and returns the story of
// the rest.
func Shrink(h History) []string {
	settles := h.Wrong.Rule == ruleConverge || h.Wrong.Rule == ruleRest
	fails := func(trace []action) bool {
		w := replayOf(h.Sink, h.Seed, trace, settles, nil)
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
	replayOf(h.Sink, h.Seed, trace, settles, &story)
	return story
}

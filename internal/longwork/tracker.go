package longwork

import (
	"log/slog"
	"math"
	"sync"
	"time"
)

// Work is a kind of work. Measure returns its progress, and false if no work is running. It must not
// block.
type Work struct {
	Name    string // such as first_sync
	Unit    string // what is counted, such as objects
	Measure func() (Amount, bool)
}

// Progress is the progress of a kind of work.
type Progress struct {
	Work, Unit string
	Since      time.Time // when a Tracker first saw the work
	Amount
	PerSecond float64
	Left      time.Duration // valid if Known
	Known     bool
}

// Tracker tracks the progress of kinds of work. Make one with [New].
type Tracker struct {
	works []Work
	now   func() time.Time
	log   *slog.Logger

	mu   sync.Mutex
	runs map[string]*run
}

// run is a piece of work that is running.
type run struct {
	began   time.Time
	samples []sample
	most    int64     // the highest total or amount done
	logged  time.Time // when the work was last logged; zero if it was not
	shown   int64     // Amount.Done at that time
}

// New makes a Tracker. Each kind of work needs its own name.
func New(works []Work, now func() time.Time, log *slog.Logger) *Tracker {
	return &Tracker{works: works, now: now, log: log, runs: map[string]*run{}}
}

// Interval is how often the forwarder calls [Tracker.Sample]. Package bar calls Sample more often.
const Interval = time.Second

// logInterval is the time after which running work is first logged, and the shortest time between
// two log messages about the same work. See due.
const logInterval = 10 * time.Second

// Sample measures all work. It logs the progress and the completion of long work. Work that
// makes no progress isn't logged again.
func (t *Tracker) Sample() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for _, w := range t.works {
		amount, is := w.Measure()
		r := t.runs[w.Name]
		switch {
		case is:
			t.sample(w, amount, now)
		case r != nil:
			delete(t.runs, w.Name)
			if !r.logged.IsZero() {
				t.log.Info("work completed", "work", w.Name, "unit", w.Unit, "total", r.most, "seconds", math.Round(now.Sub(r.began).Seconds()))
			}
		}
	}
}

func (t *Tracker) sample(w Work, a Amount, now time.Time) {
	r := t.runs[w.Name]
	if r == nil {
		r = &run{began: now, shown: a.Done}
		t.runs[w.Name] = r
	}
	r.samples = add(r.samples, sample{now, a.Done})
	r.most = max(r.most, a.Total, a.Done)
	if r.due(now) && a.Done != r.shown {
		t.log.Info("work in progress", r.progress(w, a, now).attributes()...)
		r.logged, r.shown = now, a.Done
	}
}

// due reports whether it is time to log the work. The interval is logInterval or a tenth of the
// time that the work has lasted, whichever is longer.
func (r *run) due(now time.Time) bool {
	lasted, last := now.Sub(r.began), r.logged
	if last.IsZero() {
		last = r.began
	}
	return now.Sub(last) >= max(logInterval, lasted/10)
}

// Progress returns the progress of each kind of work that is running, in the order passed to [New].
func (t *Tracker) Progress() (all []Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for _, w := range t.works {
		amount, is := w.Measure()
		if !is {
			continue
		}
		r := t.runs[w.Name]
		if r == nil { // the work began after the last sample
			r = &run{began: now}
		}
		all = append(all, r.progress(w, amount, now))
	}
	return all
}

func (r *run) progress(w Work, a Amount, now time.Time) Progress {
	if a.Total > 0 {
		a.Total = max(a.Total, a.Done)
	}
	p := Progress{Work: w.Name, Unit: w.Unit, Since: r.began, Amount: a, PerSecond: speed(r.samples, sample{now, a.Done})}
	p.Left, p.Known = left(a, p.PerSecond)
	return p
}

// attributes returns the attributes of a log message.
func (p Progress) attributes() []any {
	all := []any{"work", p.Work, "unit", p.Unit, "done", p.Done}
	if p.Total > 0 {
		all = append(all, "total", p.Total)
	}
	all = append(all, "per_second", math.Round(p.PerSecond*10)/10)
	if p.Known {
		all = append(all, "left", p.Left.Round(time.Second).String())
	}
	return all
}

package informers

import "time"

// When discovery is asked. A change of a definition is acted upon when none has
// followed it for quiet, but no later than latest after the first: however many
// definitions come at once, discovery is asked for them at most once in latest.
// What discovery says lags behind the definitions a little, so it is asked again
// after each of settling. Else it is asked every eager where not all definitions can
// be watched, and every Config.Rediscover where they can.
const (
	quiet  = 100 * time.Millisecond
	latest = time.Second
	eager  = 2 * time.Second
)

var settling = [...]time.Duration{200 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}

// agenda says when discovery is to be asked next. It has no clock of its own.
type agenda struct {
	asked       time.Time // when discovery last answered, or did not
	first, last time.Time // of the changes that it has not been asked about, zero for none
	again       int       // how many of settling are left
}

// change notes that a definition has changed.
func (a *agenda) change(now time.Time) {
	if a.first.IsZero() {
		a.first = now
	}
	a.last = now
}

// ask notes that discovery is asked now, about all changes so far.
func (a *agenda) ask() {
	switch {
	case !a.first.IsZero():
		a.again = len(settling)
		a.first, a.last = time.Time{}, time.Time{}
	case a.again > 0:
		a.again--
	}
}

// due is when to ask next; poll is how often where nothing changes.
func (a *agenda) due(poll time.Duration) time.Time {
	switch {
	case !a.first.IsZero():
		calm, bound := a.last.Add(quiet), a.first.Add(latest)
		if calm.Before(bound) {
			return calm
		}
		return bound
	case a.again > 0:
		return a.asked.Add(min(poll, settling[len(settling)-a.again]))
	default:
		return a.asked.Add(poll)
	}
}

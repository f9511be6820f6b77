package discovery

import "time"

// Discovery runs after a change of a definition: when no other change has come for debounce, at
// the latest maxDelay after the first change. So many changes at once cost one discovery per
// maxDelay. Discovery lags behind the definitions a little, so it is repeated after each of
// followUps.
const (
	debounce = 100 * time.Millisecond
	maxDelay = time.Second
)

var followUps = [...]time.Duration{200 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}

// MaxPerChange is the number of discoveries that one change of a definition causes at most.
const MaxPerChange = 1 + len(followUps)

// Schedule decides when the next discovery is due. It has no clock of its own.
type Schedule struct {
	finished    time.Time // of the last discovery
	first, last time.Time // of the changes since the last discovery began, zero for none
	left        int       // the number of followUps that remain
}

// Changed records that a definition has changed.
func (s *Schedule) Changed(now time.Time) {
	if s.first.IsZero() {
		s.first = now
	}
	s.last = now
}

// Begin records that discovery begins. It covers all changes so far.
func (s *Schedule) Begin() {
	switch {
	case !s.first.IsZero():
		s.left = len(followUps)
		s.first, s.last = time.Time{}, time.Time{}
	case s.left > 0:
		s.left--
	}
}

// Finish records that discovery has ended, with or without an answer.
func (s *Schedule) Finish(now time.Time) { s.finished = now }

// Due returns when the next discovery begins. The poll interval applies if nothing changes.
func (s *Schedule) Due(poll time.Duration) time.Time {
	switch {
	case !s.first.IsZero():
		quiet, latest := s.last.Add(debounce), s.first.Add(maxDelay)
		if quiet.Before(latest) {
			return quiet
		}
		return latest
	case s.left > 0:
		return s.finished.Add(min(poll, followUps[len(followUps)-s.left]))
	default:
		return s.finished.Add(poll)
	}
}

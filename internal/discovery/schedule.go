package discovery

import "time"

// After a change of a CustomResourceDefinition or an APIService, discovery runs once no other
// change has arrived for the duration debounce, but no later than maxDelay after the first change.
// So a burst of changes causes only one discovery per maxDelay. Discovery documents lag slightly
// behind these objects, so discovery repeats after each delay in followUps.
const (
	debounce = 100 * time.Millisecond
	maxDelay = time.Second
)

var followUps = [...]time.Duration{200 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}

// Schedule decides when the next discovery is due. Its callers pass the time.
type Schedule struct {
	finished    time.Time // when the last discovery ended
	first, last time.Time // first and last change since the last discovery began, zero for none
	left        int       // number of remaining followUps
}

// Changed records that a CustomResourceDefinition or an APIService has changed.
func (s *Schedule) Changed(now time.Time) {
	if s.first.IsZero() {
		s.first = now
	}
	s.last = now
}

// Begin records that a discovery begins. This discovery covers all changes so far.
func (s *Schedule) Begin() {
	switch {
	case !s.first.IsZero():
		s.left = len(followUps)
		s.first, s.last = time.Time{}, time.Time{}
	case s.left > 0:
		s.left--
	}
}

// Finish records that a discovery has ended, successfully or not.
func (s *Schedule) Finish(now time.Time) { s.finished = now }

// Due returns the time when the next discovery is due. poll is the interval if nothing changes.
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

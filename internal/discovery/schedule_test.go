package discovery

import (
	"testing"
	"time"
)

// asks runs a schedule with changes at the given times until only polling is left. It returns the
// start times of all discoveries.
func asks(changes []time.Duration, poll time.Duration) (asked []time.Duration) {
	epoch := time.Unix(0, 0)
	var a Schedule
	a.Finish(epoch)
	for {
		due := a.Due(poll)
		if len(changes) > 0 && epoch.Add(changes[0]).Before(due) {
			a.Changed(epoch.Add(changes[0]))
			changes = changes[1:]
			continue
		}
		if len(changes) == 0 && a.first.IsZero() && a.left == 0 {
			return append(asked, due.Sub(epoch)) // the first poll
		}
		a.Begin()
		a.Finish(due) // discovery takes no time
		asked = append(asked, due.Sub(epoch))
	}
}

func TestSchedule(t *testing.T) {
	const ms = time.Millisecond
	burst := make([]time.Duration, 200) // a definition every 50 ms, for 10 s
	for n := range burst {
		burst[n] = time.Second + time.Duration(n)*50*ms
	}
	for name, c := range map[string]struct {
		changes []time.Duration
		poll    time.Duration
		want    []time.Duration
	}{
		"nothing changes": {nil, 30 * time.Second, []time.Duration{30 * time.Second}},
		"one definition, in three steps": {
			[]time.Duration{1000 * ms, 1020 * ms, 1050 * ms}, 30 * time.Second,
			[]time.Duration{1150 * ms, 1350 * ms, 2350 * ms, 4350 * ms, 8350 * ms, 38350 * ms},
		},
		"the pause before a follow-up is never longer than the polling": {
			[]time.Duration{1000 * ms}, 500 * ms,
			[]time.Duration{500 * ms, 1000 * ms, 1100 * ms, 1300 * ms, 1800 * ms, 2300 * ms, 2800 * ms, 3300 * ms},
		},
		"many definitions": {burst, time.Hour, []time.Duration{
			2000 * ms, 3000 * ms, 4000 * ms, 5000 * ms, 6000 * ms, 7000 * ms, 8000 * ms, 9000 * ms, 10000 * ms, 11000 * ms,
			11200 * ms, 12200 * ms, 14200 * ms, 18200 * ms, 18200*ms + time.Hour,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := asks(c.changes, c.poll)
			if len(got) != len(c.want) {
				t.Fatalf("asked at %v, want %v", got, c.want)
			}
			for n := range got {
				if got[n] != c.want[n] {
					t.Errorf("asked at %v, want %v", got, c.want)
					break
				}
			}
		})
	}
}

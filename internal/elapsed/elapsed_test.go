package elapsed

import (
	"testing"
	"time"
)

func TestAge(t *testing.T) {
	began := At(time.Now())
	if began.Wall != began.Wall.Round(0) {
		t.Error("the wall clock has a monotonic reading")
	}
	now := began.Monotonic.Add(time.Hour)
	for name, c := range map[string]struct {
		m    Moment
		want time.Duration
	}{
		"both clocks agree":          {began, time.Hour},
		"the machine has slept":      {Moment{began.Monotonic, began.Wall.Add(-time.Hour)}, 2 * time.Hour},
		"the wall clock is set back": {Moment{began.Monotonic, began.Wall.Add(2 * time.Hour)}, time.Hour},
	} {
		if got := c.m.Age(now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

package longwork

import "time"

// window is the period over which the speed is measured.
const window = 30 * time.Second

// sample is the progress of a piece of work at a time.
type sample struct {
	at   time.Time
	done int64
}

// speed returns the work done per second since the oldest sample, and 0 if that is unknown.
func speed(samples []sample, now sample) float64 {
	if len(samples) == 0 {
		return 0
	}
	first := samples[0]
	seconds, done := now.at.Sub(first.at).Seconds(), now.done-first.done
	if seconds <= 0 || done <= 0 {
		return 0
	}
	return float64(done) / seconds
}

// left estimates how long the rest takes at a speed, and returns false if it can't.
func left(a Amount, perSecond float64) (time.Duration, bool) {
	if perSecond <= 0 || a.Total <= 0 || a.Growing {
		return 0, false
	}
	seconds := float64(max(0, a.Total-a.Done)) / perSecond
	if seconds > maxLeft.Seconds() {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

// maxLeft is the longest estimate. Slower work is practically stuck.
const maxLeft = 30 * 24 * time.Hour

// add appends a sample. Of the samples that are older than the window, it keeps only the newest.
func add(samples []sample, s sample) []sample {
	samples = append(samples, s)
	old := 0
	for old+1 < len(samples) && s.at.Sub(samples[old+1].at) >= window {
		old++
	}
	return append(samples[:0], samples[old:]...)
}

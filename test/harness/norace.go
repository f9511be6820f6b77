//go:build !race

package harness

// RaceEnabled reports whether the test was built with the race detector.
const RaceEnabled = false

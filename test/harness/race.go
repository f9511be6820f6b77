//go:build race

package harness

// RaceEnabled tells whether this was built with the race detector.
const RaceEnabled = true

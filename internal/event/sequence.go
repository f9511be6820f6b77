package event

import (
	"fmt"
	"strconv"
	"strings"
)

// LastEpoch is the highest epoch that sorts correctly as text. In it, versions have no
// order: any other version of an object counts as later, as if versions were not numbers.
const LastEpoch = 9999

// MaxEpochJump bounds how far an epoch on the bus may be above those that are known. An epoch
// begins when a history goes back, which is far rarer.
const MaxEpochJump = 100

const (
	epochDigits   = 4
	versionDigits = 20 // of the largest uint64
)

// sequence returns the attribute sequence: "0000.00000000000000012345". Its lexicographic
// order is the order of the object's states, up to epoch 9999. A resourceVersion that is no
// number, as an aggregated API can serve, has no order and stays unchanged.
func sequence(epoch uint16, resourceVersion string) string {
	b := make([]byte, 0, epochDigits+1+versionDigits)
	b = appendPadded(b, strconv.Itoa(int(epoch)), epochDigits)
	b = append(b, '.')
	if !isNumber(resourceVersion) {
		return string(append(b, resourceVersion...))
	}
	return string(appendPadded(b, resourceVersion, versionDigits))
}

// NextEpoch returns the epoch after e, or the last one.
func NextEpoch(e uint16) uint16 { return min(e, LastEpoch-1) + 1 }

// parseSequence returns the epoch of the attribute sequence of an event with this version.
// Only what [sequence] returns is valid.
func parseSequence(s, resourceVersion string) (epoch uint16, err error) {
	digits, _, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(digits, 10, 16)
	switch {
	case err != nil || n > LastEpoch:
		return 0, fmt.Errorf("sequence %.100q does not begin with an epoch", s)
	case s != text(sequence(uint16(n), resourceVersion)):
		return 0, fmt.Errorf("sequence %.100q is not that of version %.100q", s, resourceVersion)
	}
	return uint16(n), nil
}

func appendPadded(b []byte, digits string, width int) []byte {
	for range width - len(digits) {
		b = append(b, '0')
	}
	return append(b, digits...)
}

func isNumber(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

package event

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	epochDigits   = 4
	versionDigits = 20 // those of the greatest uint64
)

// sequence is the attribute sequence: "0000.00000000000000012345". Its
// lexicographic order is the order of the object's states, up to epoch 9999. A
// resourceVersion that is no number, as an aggregated API may serve, has no order
// and stays as it is.
func sequence(epoch uint16, resourceVersion string) string {
	b := make([]byte, 0, epochDigits+1+versionDigits)
	b = appendPadded(b, strconv.Itoa(int(epoch)), epochDigits)
	b = append(b, '.')
	if !isNumber(resourceVersion) {
		return string(append(b, resourceVersion...))
	}
	return string(appendPadded(b, resourceVersion, versionDigits))
}

// epochOf reads the epoch back from the attribute sequence.
func epochOf(sequence string) (uint16, error) {
	digits, _, ok := strings.Cut(sequence, ".")
	if !ok || len(digits) < epochDigits || !isNumber(digits) {
		return 0, fmt.Errorf("sequence %q does not begin with an epoch", sequence)
	}
	epoch, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("sequence %q: %w", sequence, err)
	}
	return uint16(epoch), nil
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

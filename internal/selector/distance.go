package selector

import (
	"cmp"
	"slices"
	"strings"
)

// Nearest returns the name with the smallest edit distance from an unknown name. If several names
// have that distance, it returns the first in alphabetical order. It returns "" if names is empty.
func Nearest(unknown string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return slices.MinFunc(names, func(a, b string) int {
		return cmp.Or(distance(unknown, a)-distance(unknown, b), strings.Compare(a, b))
	})
}

// maxTypingErrors is the edit distance up to which a name counts as similar.
const maxTypingErrors = 2

// Similar is like [Nearest], but for names that can be unrelated. It returns "" if no name is
// similar.
func Similar(unknown string, names []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { // a cheap filter, because names can have thousands of elements
		return max(len(name)-len(unknown), len(unknown)-len(name)) > maxTypingErrors
	})
	name := Nearest(unknown, names)
	if distance(unknown, name) > maxTypingErrors {
		return ""
	}
	return name
}

// distance returns the Levenshtein distance between two names, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j+1]+1, row[j]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

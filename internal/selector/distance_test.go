package selector

import "testing"

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"abc", "abc", 0}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2},
	} {
		if got := distance(tc.a, tc.b); got != tc.want {
			t.Errorf("%s to %s: got %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

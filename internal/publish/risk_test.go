package publish

import "testing"

func TestRiskNamesAFewTopics(t *testing.T) {
	r := Risk{Setting: "x=1", Of: []string{"a", "b", "c", "d", "e", "f", "g"}, Loses: "all"}
	if got, want := r.String(), "x=1 (a, b, c, d, e and 2 more): all"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

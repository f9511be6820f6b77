package jsoncompare

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestWork verifies that the comparison of two crafted objects gives up within its limits of work
// and memory, and reports places until then. The comparison of the largest ordinary objects must be
// complete.
func TestWork(t *testing.T) {
	wrap := func(levels int, value string) string {
		return strings.Repeat(`{"a":`, levels) + value + strings.Repeat(`}`, levels)
	}
	array := func(n int, item string) string { return `[` + strings.Repeat(item+`,`, n) + item + `]` }
	members := func(n int, value string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"%06d":%s,`, i, value)
		}
		return `{` + b.String() + `"z":0}`
	}
	for name, tt := range map[string]struct {
		before, after string
		complete      bool
		places        int // at least
	}{
		"many items":           {wrap(1, array(350_000, `""`)), wrap(1, array(350_000, `"a"`)), false, 1_000},
		"many items removed":   {wrap(1, array(350_000, `1`)), wrap(1, `[]`), false, 1_000},
		"many items added":     {wrap(1, `[]`), wrap(1, array(350_000, `1`)), false, 1_000},
		"many members":         {wrap(2, members(100_000, "1")), wrap(2, members(100_000, "2")), false, 0},
		"many top-level ones":  {members(100_000, "1"), members(100_000, "2"), false, 0},
		"many members added":   {wrap(1, `{}`), wrap(1, members(100_000, "1")), false, 0},
		"deep and large":       {wrap(MaxDepth, array(500_000, "1")), wrap(MaxDepth, array(500_000, "2")), false, 0},
		"many arrays":          {wrap(1, array(50_000, array(9, "1"))), wrap(1, array(50_000, array(9, "2"))), false, 1_000},
		"many objects":         {wrap(1, array(50_000, members(2, "1"))), wrap(1, array(50_000, members(2, "2"))), false, 1_000},
		"equal, but for space": {wrap(1, array(50_000, members(2, "1"))), wrap(1, array(50_000, members(2, " 1"))), false, 0},
		"large and ordinary":   {wrap(4, `{"b":`+array(70_000, `{"name":"x","n":1}`)+`,"c":1}`), wrap(4, `{"b":`+array(70_000, `{"name":"x","n":1}`)+`,"c":2}`), true, 1},
		"one of many items":    {wrap(3, array(350_000, `""`)), wrap(3, array(350_000, `""`)+" "), true, 0},
		"one large value":      {wrap(2, `"`+strings.Repeat("x", 1_400_000)+`1"`), wrap(2, `"`+strings.Repeat("x", 1_400_000)+`2"`), true, 1},
	} {
		for _, sorted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, sorted %t", name, sorted), func(t *testing.T) {
				before, after := []byte(tt.before), []byte(tt.after)
				places := 0
				c := comparison{sorted: sorted, work: maxWork, report: func(_, _, _ []byte) bool { places++; return true }}
				var was, is runtime.MemStats
				runtime.ReadMemStats(&was)
				complete, err := c.compare(before, after)
				runtime.ReadMemStats(&is)
				if err != nil || complete != tt.complete || places < tt.places {
					t.Errorf("complete %t, %d places, %v; want %t and at least %d", complete, places, err, tt.complete, tt.places)
				}
				// The last step may exceed the limit: it scans two values at most.
				if limit := maxWork + len(before) + len(after); maxWork-c.work > limit {
					t.Errorf("%d bytes of work, want at most %d", maxWork-c.work, limit)
				}
				if limit := maxWork / storedWork; places > limit {
					t.Errorf("%d places, want at most %d", places, limit)
				}
				if allocated := is.TotalAlloc - was.TotalAlloc; allocated > 3*maxWork {
					t.Errorf("%d bytes allocated, want at most %d", allocated, 3*maxWork)
				}
			})
		}
	}
}

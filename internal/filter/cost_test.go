package filter_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/filter"
)

// large returns an object with a string of 700 KB, more strings of nearly that size, and a list of
// 1,000 elements.
func large() map[string]any {
	l := make([]any, 1000)
	for i := range l {
		l[i] = fmt.Sprint(i)
	}
	return map[string]any{"s": strings.Repeat("x", 700_000), "l": l, "f": strings.Repeat("%.1000000f", 20), "p": "%.999999f"}
}

// TestResultSizeHasACost verifies that the size of results is limited like the number of steps. In
// an earlier version, the operator + on values of unknown type cost one step, whatever the size of the
// values, and an expression could turn 700 KB into 1.3 GB.
func TestResultSizeHasACost(t *testing.T) {
	const most = 50_000_000
	object := large()
	for _, expression := range []string{
		`object.l.map(x, object.s + object.s).size() > 1`,
		`object.l.exists(x, object.s + x == "y")`,
		`object.l.map(x, object.s).join(",") == ""`,
		`object.l.map(x, object.s).join() == ""`,
		`object.l.exists(x, [object.s, object.s].join("") == "y")`,
		`object.l.map(x, bytes(object.s) + bytes(object.s)).size() > 1`,
		`object.l.map(x, string(bytes(object.s))).size() > 1`,
		`object.l.map(x, object.s.upperAscii()).size() > 1`,
		`object.s.replace("", object.s) == ""`,
		`object.s.replace("x", object.s) == ""`,
		`object.s.replace("x", object.s, 1000) == ""`,
		`object.l.map(x, object.s.replace("y", "z")).size() > 1`,
		`object.s.split("").size() > 1`,
		`(object.s + object.s + object.s + object.s + object.s).split("").size() > 1`,
		`object.l.map(x, object.s.split("x", 100)).size() > 1`,
		`"%s".format([object.l.map(x, object.s)]) == ""`,
		`"%s".format([object.l.map(x, {x: object.s})]) == ""`,
		`object.l.map(x, "%s".format([object.s])).size() > 1`,
		`object.l.map(x, object.s.replace("x", "0123456789abc")).size() > 1`,
		`object.l.map(x, object.s.substring(0, 600000).split("")).size() > 1`,
		`object.l.map(x, object.l).map(y, object.l.map(x, y)).flatten(3).size() > 1`,
		`object.l.map(x, object.l).flatten().map(x, object.l).flatten().size() > 1`,
		`[object.s].map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).size() > 1`,
		`object.l.all(x, object.l.all(y, object.s >= object.s))`,
		`object.l.all(x, object.l.all(y, object.s.size() > 1))`,
		`object.l.all(x, object.l.all(y, !("y" in object.l)))`,
	} {
		t.Run(expression, func(t *testing.T) {
			selects := compile(t, expression).For(pods)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			selected, err := selects(object)
			runtime.ReadMemStats(&after)
			var failed *filter.Error
			if !selected || !errors.As(err, &failed) || failed.Reason != filter.TooCostly {
				t.Errorf("got %v, %v; want TooCostly", selected, err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > most {
				t.Errorf("it allocated %d MB, want at most %d", n/1_000_000, most/1_000_000)
			}
		})
	}
}

// TestLargeOperandsCostMoreThanOneStep_Slow verifies that the cost limit stops expressions that
// Kubernetes and cel-go would accept, because they do not know the types of the operands.
func TestLargeOperandsCostMoreThanOneStep_Slow(t *testing.T) {
	object := large()
	for _, expression := range []string{
		`object.l.all(x, object.s.size() > 1)`,
		`object.l.all(x, object.s >= object.s)`,
		`object.l.all(x, !("y" in object.l))`,
		`object.l.all(x, bytes(object.s) != b"")`,
		`[dyn(bytes(object.s))].all(b, object.l.all(x, string(b) != ""))`,
		`object.l.all(x, object.l.sort().size() > 1)`,
	} {
		_, err := compile(t, expression).For(pods)(object)
		var failed *filter.Error
		if !errors.As(err, &failed) || failed.Reason != filter.TooCostly {
			t.Errorf("%s: got %v; want TooCostly", expression, err)
		}
	}
}

// TestLoopsEndAtTheirTimeout verifies that an evaluation with a loop ends when its time is over, even
// if its cost is within the limit. Here, the time is over before the loop begins.
func TestLoopsEndAtTheirTimeout(t *testing.T) {
	f := compile(t, `object.l.all(x, x != "")`)
	f.SetTimeout(0)
	selected, err := f.For(pods)(large())
	var failed *filter.Error
	if !selected || !errors.As(err, &failed) || failed.Reason != filter.TooCostly {
		t.Errorf("got %v, %v; want TooCostly", selected, err)
	}
}

// TestFormatIsLimited verifies that the precision in a format is limited, although the precision is
// not the size of an argument.
func TestFormatIsLimited(t *testing.T) {
	if _, err := compile(t, `object.p.format([1.5]) == ""`).For(pods)(large()); err == nil {
		t.Error("format wrote a million digits")
	}
}

// TestQuadraticCallsDoNotStart verifies that a call whose number of comparisons exceeds the cost limit
// does not start. cel-go counts the cost only after the call. Without the limit, this test takes hours.
func TestQuadraticCallsDoNotStart(t *testing.T) {
	l, k := make([]any, 500_000), make([]any, 500_000)
	for i := range l {
		l[i], k[i] = fmt.Sprint(i), fmt.Sprint(-1-i)
	}
	for _, expression := range []string{
		`object.l.distinct().size() > 1`, `sets.contains(object.l, object.l)`, `sets.equivalent(object.l, object.l)`,
		`sets.intersects(object.l, object.k)`,
	} {
		_, err := compile(t, expression).For(pods)(map[string]any{"l": l, "k": k})
		var failed *filter.Error
		if !errors.As(err, &failed) || failed.Reason != filter.TooCostly {
			t.Errorf("%s: got %v, want TooCostly", expression, err)
		}
	}
	for _, expression := range []string{
		`object.l.distinct().size() == 300`, `sets.contains(object.l, ["7"])`, `sets.equivalent(object.l, object.l)`, `!sets.intersects(object.l, ["x"])`,
	} {
		if selected, err := compile(t, expression).For(pods)(map[string]any{"l": l[:300]}); !selected || err != nil {
			t.Errorf("%s: got %v, %v", expression, selected, err)
		}
	}
}

// TestExponentIsLimited verifies that a quantity with a large exponent is rejected. A comparison writes
// out the digits of a quantity: 1e999999999 would take hours and gigabytes.
func TestExponentIsLimited(t *testing.T) {
	const exponent = "3000000" // small enough that a failing test ends
	for text, costly := range map[string]bool{
		"1e" + exponent: true, "1E+" + exponent: true, "-1e-" + exponent: true, "12345678901234567890.5e" + exponent: true, "1e99999999999999999999": true,
		"1e3": false, "1.5E+3": false, "12e-3": false, "1E": false, "1Ei": false, "100Gi": false, "1e1000": false,
	} {
		for _, expression := range []string{`quantity(object.q).isLessThan(quantity("0"))`, `!isQuantity(object.q)`} {
			selected, err := compile(t, expression).For(pods)(map[string]any{"q": text})
			var failed *filter.Error
			if is := errors.As(err, &failed) && failed.Reason == filter.TooCostly; is != costly || !costly && err != nil {
				t.Errorf("%s of %s: got %v, %v; too costly: want %t", expression, text, selected, err, costly)
			}
		}
	}
}

// TestLargeObjectsAreEvaluated verifies that the cost limit still allows ordinary expressions on
// large objects.
func TestLargeObjectsAreEvaluated(t *testing.T) {
	object := large()
	for _, expression := range []string{
		`object.s.size() == 700000`,
		`object.s + object.s != ""`,
		`object.l.all(x, x + "y" != "")`,
		`object.l.map(x, x + "y").join(",").size() > 4000`,
		`object.l.exists(x, object.s == x) || object.l.size() == 1000`,
		`object.s.replace("y", "z") == object.s`,
		`object.s.startsWith("x") && object.s.contains("x") && object.s.split(",").size() == 1`,
		`"%s %d %.2f".format([object.s, 1, 2.5]).endsWith(" 1 2.50")`,
		`(object.l + object.l).size() == 2000`,
		`object.l.map(x, [x, x]).flatten().size() == 2000`,
		`object.l.map(x, x).filter(x, x in ["1", "2"]).size() == 2`,
	} {
		if selected, err := compile(t, expression).For(pods)(object); !selected || err != nil {
			t.Errorf("%s: got %v, %v", expression, selected, err)
		}
	}
}

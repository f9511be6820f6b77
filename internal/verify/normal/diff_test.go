package normal

import "testing"

func TestDifferences(t *testing.T) {
	for _, tc := range []struct{ cluster, bus, want string }{
		{`{"a":1}`, `{"a":1.0}`, ""},
		{`{"a":1}`, `{"a":2}`, "a"},
		{`{"a":{"b":[{"c":1}]}}`, `{"a":{"b":[{"c":2}]}}`, "a.b[0].c"},
		{`{"a":[1,2]}`, `{"a":[1]}`, "a"},
		{`{"a":1}`, `{"b":1}`, "a (not on the bus), b (only on the bus)"},
		{`{"a":null}`, `{}`, "a (not on the bus)"},
		{`{"a":null}`, `{"a":{}}`, "a"},
		{`{"a":{"x.y/z":1}}`, `{"a":{"x.y/z":2}}`, `a["x.y/z"]`},
		{"{\"a\":{\"\\u001b[2J\":1}}", `{"a":{}}`, `a["\x1b[2J"] (not on the bus)`},
		{`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}`, `{"a":2,"b":2,"c":2,"d":2,"e":2,"f":2,"g":2}`, "a, b, c, d, e and more"},
	} {
		if got := Differences(mustDecode(t, tc.cluster), mustDecode(t, tc.bus)); got != tc.want {
			t.Errorf("%s, %s: got %q, want %q", tc.cluster, tc.bus, got, tc.want)
		}
	}
}

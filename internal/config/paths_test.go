package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestPaths(t *testing.T) {
	for _, tc := range []struct {
		value string
		want  Paths
	}{
		{"", nil},
		{" \n ", nil},
		{"nodes:.a", Paths{"nodes:.a"}},
		{"nodes:.a, *:.b", Paths{"nodes:.a", "*:.b"}},
		{"nodes:.a\n*:.b\n", Paths{"nodes:.a", "*:.b"}},
		{"\n  nodes:.a\n\n  *:.b,\n  *:.c\n", Paths{"nodes:.a", "*:.b", "*:.c"}},
		{`*:.a["b,c"],*:.d`, Paths{`*:.a["b,c"]`, "*:.d"}},
		{`*:.a['b],c'],*:.d`, Paths{`*:.a['b],c']`, "*:.d"}},
		{`*:.a["b\",],c"],*:.d`, Paths{`*:.a["b\",],c"]`, "*:.d"}},
		{`*:.a\,b,*:.d`, Paths{`*:.a\,b`, "*:.d"}},
		{`*:.a[?(@.b=="c,d")].e,*:.f`, Paths{`*:.a[?(@.b=="c,d")].e`, "*:.f"}},
		{`*:.a["b,c`, Paths{`*:.a["b,c`}}, // the path is invalid, and its parser reports that
		{`*:.a's,*:.b`, Paths{"*:.a's", "*:.b"}},
	} {
		var got Paths
		if err := got.Decode(tc.value); err != nil {
			t.Errorf("%q: %v", tc.value, err)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%q:\ngot  %q\nwant %q", tc.value, got, tc.want)
		}
	}
	for _, value := range []string{",", "a,", ",a", "a,,b", "a, \n,b", "a,\n"} {
		var got Paths
		if err := got.Decode(value); !errors.Is(err, errNoPath) {
			t.Errorf("%q: got %q, %v", value, got, err)
		}
	}
}

// FuzzPaths verifies that decoding the formatted paths returns the same paths, and that decoding
// loses only commas, line breaks and spaces.
func FuzzPaths(f *testing.F) {
	for _, s := range []string{"nodes:.a,*:.b", "a:.x[\"y,z\"]\nb:.c", `a:.b\`, "a:.b['c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var once, twice Paths
		if once.Decode(s) != nil {
			return
		}
		bare := func(s string) string {
			return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ',' || strings.TrimSpace(string(r)) == "" }), "")
		}
		if got, want := bare(strings.Join(once, "")), bare(s); got != want {
			t.Errorf("%q: got %q", s, once)
		}
		for _, path := range once[:max(0, len(once)-1)] {
			if err := twice.Decode(path); err != nil || len(twice) != 1 || twice[0] != path {
				t.Errorf("%q: %q is read as %q, %v", s, path, twice, err)
			}
		}
	})
}

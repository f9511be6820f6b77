package event

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/kuberelay/kuberelay/internal/jsoncompare"
)

func checkPatch(t *testing.T, before, patch, after []byte) {
	t.Helper()
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	options := jsonpatch.NewApplyOptions()
	options.SupportNegativeIndices = false
	got, err := p.ApplyWithOptions(before, options)
	if err != nil {
		t.Fatalf("apply %s to %s: %v", patch, before, err)
	}
	if canonical(t, got) != canonical(t, after) {
		t.Errorf("%s applied to %s:\n got %s\nwant %s", patch, before, got, after)
	}
}

// tree decodes an object. Numbers keep their text.
func tree(text []byte) (content map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&content)
	return content, err
}

// canonical returns JSON with sorted keys. Numbers keep their text.
func canonical(t *testing.T, text []byte) string {
	t.Helper()
	content, err := tree(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	b, err := EncodeJSON(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestPatchAtRandom verifies that a patch turns one object exactly into the other, and is
// deterministic. The attribute "changed" must list places if and only if the patch has operations.
func TestPatchAtRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	different := 0
	for range 5_000 {
		before, after := randomText(t, r), randomText(t, r)
		patch, err := PatchOf(before, after)
		if err != nil {
			t.Fatal(err)
		}
		checkPatch(t, before, patch, after)
		if again, err := PatchOf(before, after); err != nil || string(again) != string(patch) {
			t.Fatalf("once %s, then %s", patch, again)
		}
		changed, err := changedPlaces(before, after)
		if same := canonical(t, before) == canonical(t, after); err != nil || same != (changed == "") || same != (string(patch) == "[]") {
			t.Errorf("from %s to %s: changed %s, patch %s, %v", before, after, changed, patch, err)
		}
		if changed != "" {
			different++
		}
	}
	if different < 2_000 {
		t.Errorf("only %d pairs differ", different)
	}
}

func randomText(t *testing.T, r *rand.Rand) []byte {
	t.Helper()
	var value func(depth int) any
	value = func(depth int) any {
		switch k := r.IntN(10); {
		case depth > 0 && k < 4:
			m := map[string]any{}
			for range r.IntN(4) {
				m[[]string{"a", "b", "-", "0", "a/b~", "<é>"}[r.IntN(6)]] = value(depth - 1)
			}
			return m
		case depth > 0 && k < 7:
			s := make([]any, r.IntN(4))
			for n := range s {
				s[n] = value(depth - 1)
			}
			return s
		}
		return []any{
			nil, true, "", "<x>\u2028", json.Number("1"), json.Number("1.0"), json.Number("-0"), json.Number("1e400"),
			json.Number("9007199254740993"), json.Number("9007199254740992"), json.Number("123456789012345678901234567890.000000001"),
		}[r.IntN(11)]
	}
	text, err := EncodeJSON(map[string]any{"a": value(3), "b": value(3)})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestPatchOfEmptyName verifies the patch of a member with an empty name. TestPatchAtRandom can't
// cover this case, because the library that applies its patches mistakes an empty name for the
// object itself.
func TestPatchOfEmptyName(t *testing.T) {
	patch, err := PatchOf([]byte(`{"":{"":1}}`), []byte(`{"":{"":2}}`))
	if want := `[{"op":"replace","path":"//","value":2}]`; err != nil || string(patch) != want {
		t.Errorf("got %s, %v; want %s", patch, err, want)
	}
}

// TestPatchOfDeep verifies that a patch replaces a value as a whole if it is nested too deeply.
func TestPatchOfDeep(t *testing.T) {
	deep := func(levels int, value string) []byte {
		return []byte(strings.Repeat(`{"a":`, levels) + value + strings.Repeat(`}`, levels))
	}
	for _, tt := range []struct{ before, after, path int }{
		{jsoncompare.MaxDepth, jsoncompare.MaxDepth, jsoncompare.MaxDepth},
		{jsoncompare.MaxDepth + 1, jsoncompare.MaxDepth + 1, jsoncompare.MaxDepth},
		{1_000, 1_000, jsoncompare.MaxDepth},
		{2, 1_000, 2},
		{1_000, 2, 2},
	} {
		before, after := deep(tt.before, "1"), deep(tt.after, "2")
		patch, err := PatchOf(before, after)
		if err != nil {
			t.Fatal(err)
		}
		var operations []struct{ Path string }
		if err := json.Unmarshal(patch, &operations); err != nil || len(operations) != 1 || operations[0].Path != strings.Repeat("/a", tt.path) {
			t.Errorf("of %d and %d levels: %s, want one operation at level %d", tt.before, tt.after, patch, tt.path)
		}
		checkPatch(t, before, patch, after)
	}
}

// TestPatchOfMany verifies that a patch longer than the object replaces the whole object, unless
// the patch is short.
func TestPatchOfMany(t *testing.T) {
	items := func(n int, value string) []byte {
		return []byte(`{"a":[` + strings.Repeat(value+",", n) + value + `]}`)
	}
	for n, path := range map[int]string{1_000: "/a/0", 3_000: ""} {
		before, after := items(n, "1"), items(n, "2")
		patch, err := PatchOf(before, after)
		if err != nil || !strings.HasPrefix(string(patch), `[{"op":"replace","path":"`+path+`"`) || len(patch) > maxPatch {
			t.Errorf("of %d items: %.50s… of %d bytes, %v; want it to replace %q", n, patch, len(patch), err, path)
		}
		checkPatch(t, before, patch, after)
	}
}

// FuzzPatch verifies that a patch turns one object exactly into the other.
func FuzzPatch(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,3],"b":{"c":null},"d":"x"}`), []byte(`{"a":[1],"b":{"c":{}},"e":1e3}`))
	f.Add([]byte(`{"a":[],"a/~":1}`), []byte(`{"a":[{"b":1},2,3],"a/~":"\u00e9\n"}`))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		b, err := tree(before)
		if err != nil || !json.Valid(before) || !utf8.Valid(before) || hasEmptyName(b) {
			return // the library that applies patches mistakes an empty name for the object itself
		}
		a, err := tree(after)
		if err != nil || !json.Valid(after) || !utf8.Valid(after) || hasEmptyName(a) || a == nil || b == nil {
			return
		}
		patch, err := PatchOf(before, after)
		if err != nil {
			t.Fatal(err)
		}
		clean, err := EncodeJSON(b) // without duplicate names
		if err != nil {
			t.Fatal(err)
		}
		checkPatch(t, clean, patch, after)
	})
}

func hasEmptyName(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if name == "" || hasEmptyName(member) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasEmptyName)
	}
	return false
}

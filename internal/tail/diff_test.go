package tail

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsoncompare"
	"github.com/kuberelay/kuberelay/test/lab/golden"
)

// state returns a published update of a Deployment.
func state(t testing.TB, typ event.Type, version, rest string, changes ...func(*event.Change)) Event {
	t.Helper()
	const format = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"generation":%s,"name":"cart","namespace":"shop","resourceVersion":"%[1]s","uid":"uid-of-cart"}%s}`
	return change(t, typ, deployments, "shop", "cart", version, append(changes, func(c *event.Change) {
		c.Object.Body = event.JSON(fmt.Appendf(nil, format, version, rest))
	})...)
}

// TestLineAndDiff compares the output for two updates of one object with the golden files. The
// updates change a list, a number and a multiline string with tabs, and the object has a long line.
// The other events have no diff.
func TestLineAndDiff(t *testing.T) {
	long := strings.Repeat("long ", 30)
	before := `,"data":{"nginx.conf":"server {\n\tlisten 80;\n}\n","text":"` + long + `"},"spec":{"replicas":1,"selector":{"app":"cart"},"template":{"spec":{"containers":[{"name":"a","image":"cart:1"},{"name":"b","args":["true","1"]}]}}}`
	after := strings.NewReplacer(`"replicas":1`, `"replicas":12345678901234567890123`, `cart:1`, `cart:2`, `listen 80`, `listen 8080`).Replace(before)
	for _, color := range []bool{false, true} {
		name := map[bool]string{false: "diff.txt", true: "diff-color.txt"}[color]
		t.Run(name, func(t *testing.T) {
			text, states := atNoon(&Text{Color: color}), NewStates()
			var got strings.Builder
			for _, e := range []Event{
				marker(t, event.SnapshotStarted, deployments, 0),
				state(t, event.Updated, "1", before),
				state(t, event.Updated, "2", after),
				state(t, event.Updated, "3", before),
				state(t, event.Deleted, "4", before),
				state(t, event.Created, "5", before),
			} {
				got.WriteString(text.LineAndDiff(e, states.Change(e)) + "\n")
			}
			golden.Check(t, name, got.String())
		})
	}
}

func TestLineWithoutDiff(t *testing.T) {
	object := json.RawMessage(`{"metadata":{"resourceVersion":"1","managedFields":[1]}}`)
	update := state(t, event.Updated, "2", "")
	for _, tc := range []struct {
		name   string
		event  Event
		change Change
		note   string
	}{
		{"not known", update, Change{Object: object}, "watch, previous state unknown"},
		{"current state", update, Change{Object: object, Present: true}, "watch"},
		{"not whole", update, Change{}, "watch"},
		{"created", state(t, event.Created, "2", ""), Change{Object: object}, "watch"},
		{"deleted", state(t, event.Deleted, "2", ""), Change{Object: object, Previous: object}, "watch"},
		{"nothing", update, Change{Object: object, Previous: json.RawMessage(`{"metadata":{"resourceVersion":"2"}}`)}, "watch, only resourceVersion or managedFields differ"},
		{"too deep", update, Change{Object: object, Previous: json.RawMessage(`{"a":` + strings.Repeat("[", jsoncompare.MaxDepth+1) + strings.Repeat("]", jsoncompare.MaxDepth+1) + `}`)}, "watch, no diff: it is nested too deeply"},
		{"no object", update, Change{Object: object, Previous: json.RawMessage(`{`)}, "watch, no diff: its data is not an object"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := atNoon(&Text{}).LineAndDiff(tc.event, tc.change); !strings.HasSuffix(got, "  v2      "+tc.note) || strings.Contains(got, "\n") {
				t.Errorf("got %q, want %q at its end", got, tc.note)
			}
		})
	}
}

// TestDiffOddities verifies diffs of valid JSON that a YAML parser rejects or reads differently.
func TestDiffOddities(t *testing.T) {
	for before, want := range map[string]string{
		`{"a":"\ud83d\ude00"}`:                "-a: \"\\U0001F600\"\n",
		"{\"a\":\"\x7f\"}":                    "-a: \"\\x7F\"\n",
		`{"a":1.0}`:                           "-a: 1.0\n",
		`{"a":1e400,"b":-0}`:                  "-a: 1e400\n-b: -0\n",
		`{"a":"1","b":"true","c":"no","d":1}`: "-a: \"1\"\n-b: \"true\"\n-c: \"no\"\n-d: 1\n",
		`{"a":[[],{},null,""]}`:               "-a:\n-- []\n-- {}\n-- null\n-- \"\"\n",
	} {
		got, err := diff([]byte(before), []byte(`{"z":1}`))
		if err != nil || !strings.Contains(got, want+"+z: 1\n") {
			t.Errorf("%s: got %q (%v), want %q in it", before, got, err, want)
		}
	}
}

// FuzzLineAndDiff verifies that a diff of any two states has no control characters, that each of its
// lines begins with a diff marker, and that it is empty only if nothing changed.
func FuzzLineAndDiff(f *testing.F) {
	f.Add(`{"a":"\u001b[2J\r\u009b\u202e\ud800","b":"x\ny\u2028\tz\n"}`, `{"a":"\u001b","b":"x\n\u0085y\n"}`)
	f.Add(`{"a":1.0}`, `{"a":1}`)
	f.Add(`{"a":[1,"- b"]}`, `{"a":[1,"? b\n --- \n+++ x"]}`)
	f.Add(`{"metadata":{"resourceVersion":"\n\u001b"}}`, `{"x":{"<<":{"a":"*x"}}}`)
	f.Add("\"\x7f\xff\"", `"&a"`)
	f.Fuzz(func(t *testing.T, before, after string) {
		e := foreign(string(event.Updated), "s")
		got := atNoon(&Text{}).LineAndDiff(e, Change{Object: json.RawMessage(after), Previous: json.RawMessage(before)})
		line, diff, found := strings.Cut(got, "\n")
		if strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }) || !utf8.ValidString(got) {
			t.Errorf("%q has what does not print", got)
		}
		for n, l := range strings.Split(diff, "\n") {
			if found && (l == "" || !strings.ContainsRune("-+@ ", rune(l[0])) || n < headLines && l[:3] != []string{"---", "+++"}[n]) {
				t.Errorf("line %q is not marked in %q", l, diff)
			}
		}
		old, err1 := decode([]byte(before))
		now, err2 := decode([]byte(after))
		if err1 != nil || err2 != nil {
			if found || !strings.HasSuffix(line, "no diff: its data is not an object") {
				t.Errorf("got %q of what is no JSON", got)
			}
			return
		}
		if jsoncompare.IsDeeper(old, jsoncompare.MaxDepth) || jsoncompare.IsDeeper(now, jsoncompare.MaxDepth) {
			return
		}
		for _, v := range []any{old, now} {
			if root, ok := v.(map[string]any); ok {
				if metadata, ok := root["metadata"].(map[string]any); ok {
					delete(metadata, "resourceVersion")
					delete(metadata, "managedFields")
				}
			}
		}
		if same := reflect.DeepEqual(old, now); same == found {
			t.Errorf("%s and %s: same is %t, got %q", before, after, same, got)
		}
	})
}

// TestDiffCountsLines verifies the line numbers in the hunk headers for both texts. go-udiff does
// not count the equal lines between two edits of a hunk.
func TestDiffCountsLines(t *testing.T) {
	lines := func(changed map[int]string) []byte {
		var all []string
		for n := range 60 {
			if text, ok := changed[n]; !ok {
				all = append(all, fmt.Sprintf(`"l%02d":%d`, n, n))
			} else if text != "" {
				all = append(all, text)
			}
		}
		return []byte("{" + strings.Join(all, ",") + "}")
	}
	got, err := diff(lines(nil), lines(map[int]string{5: `"l05":0`, 8: `"l08":0,"l08a":0`, 30: "", 50: `"l50":0`}))
	if err != nil {
		t.Fatal(err)
	}
	var heads []string
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, "@@") {
			heads = append(heads, strings.TrimSpace(line))
		}
	}
	if want := []string{"@@ -3,10 +3,11 @@", "@@ -28,7 +29,6 @@", "@@ -48,7 +48,7 @@"}; !slices.Equal(heads, want) {
		t.Errorf("got %q, want %q", heads, want)
	}
}

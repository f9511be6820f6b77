package jsoncompare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var pairs = []struct {
	name, before, after string
	want                []string
}{
	{"the same", `{"a":1}`, `{"a":1}`, nil},
	{"spaces", ` { "a" : [ 1 , {"b":2} ] } `, `{"a":[1,{"b":2}]}`, nil},
	{"another order", `{"a":1,"b":{"c":2,"d":3}}`, `{"b":{"d":3,"c":2},"a":1}`, nil},
	{"a value", `{"a":1,"b":"x"}`, `{"a":1,"b":"y"}`, []string{"/b"}},
	{"inside", `{"a":{"b":{"c":1,"d":2}}}`, `{"a":{"b":{"c":1,"d":3}}}`, []string{"/a/b/d"}},
	{"added and removed", `{"a":{"x":1}}`, `{"b":{"y":[1,2]}}`, []string{"/a", "/b"}},
	{"another kind", `{"a":{"x":1},"b":[1],"c":1,"d":null,"e":true}`, `{"a":[1],"b":{"x":1},"c":"1","d":0,"e":false}`, []string{"/a", "/b", "/c", "/d", "/e"}},
	{"null is not absent", `{"a":null}`, `{}`, []string{"/a"}},
	{"empty is not null", `{"a":{},"b":[],"c":""}`, `{"a":null,"b":null,"c":null}`, []string{"/a", "/b", "/c"}},
	{"items", `{"a":[1,2,3]}`, `{"a":[1,0]}`, []string{"/a/1", "/a/2"}},
	{"more items", `{"a":[1]}`, `{"a":[1,{"b":1},3]}`, []string{"/a/1", "/a/2"}},
	{"an item's member", `{"a":[{"b":1},{"b":2}]}`, `{"a":[{"b":1},{"b":3}]}`, []string{"/a/1/b"}},
	{"escapes of pointers", `{"a/b":{"m~n":1},"~1":1,"":{"":1}}`, `{"a/b":{"m~n":2},"~1":2,"":{"":2}}`, []string{"//", "/a~1b/m~0n", "/~01"}},
	{"escapes of names", `{"\u0061":1,"b":2}`, `{"a":1,"\u0062":3}`, []string{"/b"}},
	{"escapes of strings", `{"a":"\u00e9\/","b":"\n"}`, `{"a":"é/","b":"n"}`, []string{"/b"}},
	{"numbers as they are written", `{"a":1,"b":1e2,"c":9007199254740993}`, `{"a":1.0,"b":100,"c":9007199254740992}`, []string{"/a", "/b", "/c"}},
	{"a name twice", `{"a":1,"a":2,"b":1}`, `{"b":1,"a":3,"a":2}`, nil},
	{"a name twice, spelled differently", `{"a":{"x":1},"\u0061":{"x":2}}`, `{"a":{"x":1}}`, []string{"/a/x"}},
	{"order of indices", `{"a":[0,1,2,3,4,5,6,7,8,9,10]}`, `{"a":[0,0,0,0,4,5,6,7,8,9,0]}`, []string{"/a/1", "/a/10", "/a/2", "/a/3"}},
	{"order beside what is gone into", `{"a":{"x":1},"a-b":1,"a.b":{"x":1},"a0":1}`, `{"a":{"x":2},"a-b":2,"a.b":{"x":2},"a0":2}`, []string{"/a-b", "/a.b/x", "/a/x", "/a0"}},
	{"order beside what is not gone into", `{"a":1,"a-b":1,"a0":1}`, `{"a":{"x":2},"a-b":2,"a0":2}`, []string{"/a", "/a-b", "/a0"}},
}

// changed returns all places that differ.
func changed(before, after []byte) ([]string, error) {
	var places []string
	_, err := Each(before, after, func(pointer []byte) bool {
		places = append(places, string(pointer))
		return true
	})
	return places, err
}

func TestChanged(t *testing.T) {
	for _, tt := range pairs {
		t.Run(tt.name, func(t *testing.T) {
			for _, p := range [][2]string{{tt.before, tt.after}, {tt.after, tt.before}} {
				got, err := changed([]byte(p[0]), []byte(p[1]))
				if err != nil || !slices.Equal(got, tt.want) {
					t.Errorf("from %s to %s: %q, %v; want %q", p[0], p[1], got, err, tt.want)
				}
				checkReference(t, []byte(p[0]), []byte(p[1]))
			}
		})
	}
}

// TestLastOfMany verifies that of many duplicate members, the last one counts. An unstable sort
// would pick another.
func TestLastOfMany(t *testing.T) {
	var many strings.Builder
	for n := range 100 {
		fmt.Fprintf(&many, `"b":%d,"a":%d,`, n, n)
	}
	checkReference(t, []byte(`{`+many.String()+`"c":1}`), []byte(`{"a":99,"b":99,"c":2}`))
}

func TestChangedRefuses(t *testing.T) {
	for _, text := range []string{``, `[]`, `null`, `1`, `"a"`, `{"a":1`, `{"a":1}{}`, `{"a":[1,}`, `{"a":{"b":tru}}`} {
		for _, p := range [][2]string{{text, `{"a":2}`}, {`{"a":2}`, text}, {text, text}} {
			called := false
			if _, err := Each([]byte(p[0]), []byte(p[1]), func([]byte) bool { called = true; return true }); err == nil || called {
				t.Errorf("from %s to %s: no error, or a place was reported before the error", p[0], p[1])
			}
		}
	}
}

// TestEachStops verifies that Each stops when its callback returns false, at any depth.
func TestEachStops(t *testing.T) {
	before, after := `{"a":{"b":[1,2]},"c":1,"d":1}`, `{"a":{"b":[3,4]},"c":2,"d":2}`
	all, err := changed([]byte(before), []byte(after))
	if err != nil || len(all) != 4 {
		t.Fatalf("got %q, %v", all, err)
	}
	for n := range all {
		var got []string
		_, _ = Each([]byte(before), []byte(after), func(pointer []byte) bool {
			got = append(got, string(pointer))
			return len(got) <= n
		})
		if !slices.Equal(got, all[:n+1]) {
			t.Errorf("got %q, want %q", got, all[:n+1])
		}
	}
}

// TestMaxDepth verifies that a difference below MaxDepth is reported as one place at MaxDepth.
func TestMaxDepth(t *testing.T) {
	nested := func(levels int, value string) []byte {
		return []byte(strings.Repeat(`{"a":`, levels) + value + strings.Repeat(`}`, levels))
	}
	for levels, want := range map[int]int{1: 1, MaxDepth: MaxDepth, MaxDepth + 1: MaxDepth, 9_000: MaxDepth} {
		got, err := changed(nested(levels, "1"), nested(levels, "2"))
		if err != nil || !slices.Equal(got, []string{strings.Repeat("/a", want)}) {
			t.Errorf("of %d levels: %d places, %v, want one of %d", levels, len(got), err, want)
		}
	}
}

func FuzzChanged(f *testing.F) {
	for _, tt := range pairs {
		f.Add([]byte(tt.before), []byte(tt.after))
	}
	f.Fuzz(func(t *testing.T, before, after []byte) {
		if deep(before) || deep(after) || !utf8.Valid(before) || !utf8.Valid(after) {
			return // encoding/json replaces invalid UTF-8
		}
		checkReference(t, before, after)
	})
}

func deep(text []byte) bool {
	return bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")) >= MaxDepth
}

// TestChangedAtRandom_Slow compares Each with the reference implementation on random pairs of similar
// objects.
func TestChangedAtRandom_Slow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	different := 0
	for range 20_000 {
		before := randomObject(r, 4)
		after := alter(r, before, 4).(map[string]any)
		b, a := write(r, before), write(r, after)
		if checkReference(t, b, a) > 0 {
			different++
		}
	}
	if different < 10_000 {
		t.Errorf("only %d pairs differ", different)
	}
}

var (
	names   = []string{"a", "b", "a-b", "a/b", "~", "é", "", "0", "a\"b", "a0"}
	scalars = []any{nil, true, false, "", "x", "é/\n", json.Number("1"), json.Number("1.0"), json.Number("9007199254740993"), json.Number("-0.5e+7")}
)

// BenchmarkEach compares two states of a pod of 12 KB that differ in one condition and the
// version.
func BenchmarkEach(b *testing.B) {
	before, after := pod("12345", "True"), pod("12399", "False")
	b.Logf("%d bytes", len(before))
	b.ReportAllocs()
	b.SetBytes(int64(len(before) + len(after)))
	places := 0
	for b.Loop() {
		places = 0
		if _, err := Each(before, after, func([]byte) bool { places++; return true }); err != nil {
			b.Fatal(err)
		}
	}
	if places != 2 {
		b.Errorf("%d places, want 2", places)
	}
}

func pod(version, ready string) []byte {
	r := rand.New(rand.NewPCG(1, 1))
	var b strings.Builder
	b.WriteString(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","namespace":"default","uid":"6f1b","resourceVersion":"` + version + `","labels":{"app":"web","tier":"front"},"annotations":{"a":"b"}},"spec":{"containers":[`)
	for n := range 3 {
		if n > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"c-%d","image":"registry.example.com/team/web:%d","imagePullPolicy":"IfNotPresent","env":[`, n, r.Uint32())
		for range 45 {
			fmt.Fprintf(&b, `{"name":"SETTING_%x","value":"%x-information-and-more"},`, r.Uint32()%97, r.Uint64())
		}
		b.WriteString(`{"name":"LAST","value":"1"}]}`)
	}
	b.WriteString(`],"nodeName":"node-1","restartPolicy":"Always","tolerations":[{"key":"a","operator":"Exists"}],"dnsPolicy":"ClusterFirst"},"status":{"phase":"Running","conditions":[`)
	for n, t := range []string{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		status := "True"
		if t == "Ready" {
			status = ready
		}
		if n > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"type":%q,"status":%q,"lastProbeTime":null,"lastTransitionTime":"2026-03-04T05:06:07Z"}`, t, status)
	}
	b.WriteString(`],"hostIP":"10.0.0.1","podIP":"10.1.2.3","podIPs":[{"ip":"10.1.2.3"}],"containerStatuses":[`)
	for n := range 3 {
		if n > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"c-%d","ready":true,"restartCount":0,"imageID":"sha256:%x%x","state":{"running":{"startedAt":"2026-03-04T05:06:07Z"}}}`, n, r.Uint64(), r.Uint64())
	}
	b.WriteString(`]}}`)
	return []byte(b.String())
}

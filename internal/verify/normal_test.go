package verify

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

func mustDecode(t testing.TB, s string) tree {
	t.Helper()
	v, err := decode([]byte(s))
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return v
}

func TestDigest(t *testing.T) {
	for _, same := range [][]string{
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, " {\n\"a\" : 1 , \"b\" : 2.0 } "},
		{`{"a":"<é\u2028"}`, `{"a":"\u003c\u00e9` + "\u2028" + `"}`},
		{`{"a":[{"x":null,"y":true}]}`, `{"a":[{"y":true,"x":null}]}`},
		{`{"a":100}`, `{"a":1e2}`, `{"a":1.0E+2}`, `{"a":10000e-2}`, `{"a":100.000}`},
		{`{"a":0}`, `{"a":-0}`, `{"a":0.0}`, `{"a":0e7}`},
		{`{"a":12345678901234567890}`, `{"a":1234567890123456789e1}`},
	} {
		for _, s := range same[1:] {
			if digestOf(mustDecode(t, same[0])) != digestOf(mustDecode(t, s)) {
				t.Errorf("%s and %s differ", same[0], s)
			}
		}
	}
	seen := map[digest]string{}
	for _, s := range []string{
		`{}`, `{"a":1}`, `{"a":"1"}`, `{"a":true}`, `{"a":false}`, `{"a":null}`, `{"a":{}}`, `{"a":[]}`, `{"a":[1]}`, `{"a":[[1]]}`, `{"a":[1,null]}`,
		`{"a":"n"}`, `{"a":""}`, `{"":""}`, `{"a":{"b":1}}`, `{"a":{},"b":1}`, `{"ab":1}`, `{"a":10}`, `{"a":0.1}`, `{"a":-1}`, `{"a":1,"b":1}`,
		`{"a":["b","c"]}`, `{"a":["c","b"]}`, `{"a":["bc"]}`, `{"a":12345678901234567890}`, `{"a":12345678901234567891}`,
		`{"a":1e99999999999}`, `{"a":1e99999999998}`, `{"a":"s"}`, `{"a":1.5}`, `{"A":1}`,
	} {
		d := digestOf(mustDecode(t, s))
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s do not differ", s, other)
		}
		seen[d] = s
	}
}

func TestDecode(t *testing.T) {
	for _, s := range []string{``, `null`, `[]`, `1`, `"a"`, `{`, `{}{}`, `{} x`, `{"a":01}`, "{\"a\":\"\x01\"}"} {
		if v, err := decode([]byte(s)); err == nil {
			t.Errorf("%q is taken for %v", s, v)
		}
	}
}

func FuzzNormalNumber(f *testing.F) {
	for _, s := range []string{"0", "-0", "1", "10", "1e3", "-1.50e-7", "0.001", "123.456E+2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !json.Valid([]byte(s)) || strings.Trim(s, "-0123456789.eE+") != "" || len(s) > 40 {
			return
		}
		normal := normalNumber(s)
		if again := normalNumber(normal); again != normal {
			t.Errorf("%s becomes %s and then %s", s, normal, again)
		}
		_, exponent, _ := strings.Cut(strings.ToLower(s), "e")
		if len(strings.Trim(exponent, "-+0")) > 3 {
			return // math/big would compute it
		}
		x, ok := new(big.Rat).SetString(s)
		y, ok2 := new(big.Rat).SetString(normal)
		if !ok || !ok2 || x.Cmp(y) != 0 {
			t.Errorf("%s becomes %s", s, normal)
		}
	})
}

// FuzzDigest: the digest does not depend on how JSON is written, and reading what
// is on the bus does not panic.
func FuzzDigest(f *testing.F) {
	f.Add(`{"a":[1,"x",{"b":null}],"c":1.50}`)
	f.Add(`{"data":{"a":"aG1hYy1zaGEyNTY6"},"metadata":{"annotations":{"a":1}},"stringData":[]}`)
	f.Fuzz(func(t *testing.T, s string) {
		v, err := decode([]byte(s))
		if err != nil {
			return
		}
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(b)
		if err != nil || digestOf(again) != digestOf(v) {
			t.Errorf("%q: %v", s, err)
		}
		if where := differences(v, again); where != "" {
			t.Errorf("%q: %s", s, where)
		}
		form{}.strip(resource{}, again)
		form{}.ofCluster(resource{}, again)
		form{}.ofBus(event.Key{Resource: "secrets"}, v)
	})
}

var secretResource = resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Kind: "Secret"}

const clusterSecret = `{"metadata":{"name":"s","namespace":"n","uid":"u","resourceVersion":"7","managedFields":[{}],
	"annotations":{"plain":"text","copy":"{\"x\":1}","kubectl.kubernetes.io/last-applied-configuration":"{}"}},
	"data":{"password":"aHVudGVyMg==","empty":""},"type":"Opaque"}`

// TestSecret: what our own converter makes of a Secret is what we take for right,
// with the key and without. That the two were written apart from each other is the
// point.
func TestSecret(t *testing.T) {
	converted, err := event.NewConverter(redactionKey).Decoder(secrets, nil, nil, event.Shape{}).Decode([]byte(clusterSecret))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		key    []byte
		change func(cluster, bus tree)
		same   bool
		plain  bool
	}{
		"with the key":                         {redactionKey, func(_, _ tree) {}, true, false},
		"without the key":                      {nil, func(_, _ tree) {}, true, false},
		"with another key":                     {[]byte("another"), func(_, _ tree) {}, false, false},
		"other value, with the key":            {redactionKey, func(c, _ tree) { c["data"].(tree)["password"] = "b3RoZXI=" }, false, false},
		"other value, without the key":         {nil, func(c, _ tree) { c["data"].(tree)["password"] = "b3RoZXI=" }, true, false},
		"other name, without the key":          {nil, func(c, _ tree) { c["data"].(tree)["token"] = "b3RoZXI=" }, false, false},
		"other annotation, with the key":       {redactionKey, func(c, _ tree) { c["metadata"].(tree)["annotations"].(tree)["plain"] = "x" }, false, false},
		"other long annotation, with the key":  {redactionKey, func(c, _ tree) { c["metadata"].(tree)["annotations"].(tree)["copy"] = "{}" }, false, false},
		"other annotation, without the key":    {nil, func(c, _ tree) { c["metadata"].(tree)["annotations"].(tree)["plain"] = "x" }, true, false},
		"other type":                           {redactionKey, func(c, _ tree) { c["type"] = "other" }, false, false},
		"other type, without the key":          {nil, func(c, _ tree) { c["type"] = "other" }, false, false},
		"plain on the bus":                     {redactionKey, func(c, b tree) { b["data"].(tree)["password"] = c["data"].(tree)["password"] }, false, true},
		"plain on the bus, without the key":    {nil, func(c, b tree) { b["data"].(tree)["password"] = c["data"].(tree)["password"] }, false, true},
		"stringData on the bus, without a key": {nil, func(_, b tree) { b["stringData"] = tree{"password": "hunter2"} }, false, true},
		"a number on the bus":                  {nil, func(_, b tree) { b["data"].(tree)["password"] = json.Number("7") }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, b := mustDecode(t, clusterSecret), mustDecode(t, textOf(t, converted))
			tc.change(c, b)
			f := form{key: tc.key}
			f.strip(secretResource, c)
			f.ofCluster(secretResource, c)
			f.ofBus(secrets.Key("n", "s"), b)
			if same := digestOf(c) == digestOf(b); same != tc.same {
				t.Errorf("same is %t; differences: %s", same, differences(c, b))
			}
			if hasPlainValue(b) != tc.plain {
				t.Errorf("a plain value is found: %t", !tc.plain)
			}
			if out, _ := json.Marshal(c); bytes.Contains(out, []byte("aHVudGVyMg")) {
				t.Errorf("the value is left: %s", out)
			}
		})
	}
}

// TestConverted: what our own converter makes of an object is what we take for
// right.
func TestConverted(t *testing.T) {
	const managed = `"managedFields":[{"a":1}],`
	for _, s := range []string{
		`{"metadata":{` + managed + `"name":"x"}}`,
		`{"metadata":{"name":"x","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}}}`,
		`{"metadata":{"name":"x","annotations":{"a":"b","kubectl.kubernetes.io/last-applied-configuration":"{}"}}}`,
		`{"metadata":{"name":"x","annotations":{}}}`,
		`{"metadata":{"name":"x","annotations":null}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"spec":{"n":1,"f":1.5,"s":"<&>","l":[null,{}]}}`,
		`{"metadata":{"name":"x"},"Metadata":{"name":"y"},"data":{"a":"b"}}`,
	} {
		r := resource{GroupVersionResource: configMaps.GroupVersionResource(), Kind: "ConfigMap"}
		o, err := event.NewConverter(nil).Decoder(configMaps, nil, nil, event.Shape{}).Decode([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		c, b := mustDecode(t, s), mustDecode(t, textOf(t, o))
		form{}.strip(r, c)
		form{}.ofCluster(r, c)
		form{}.ofBus(configMaps.Key("", "x"), b)
		if where := differences(c, b); where != "" {
			t.Errorf("%s: %s", s, where)
		}
	}
}

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
		if got := differences(mustDecode(t, tc.cluster), mustDecode(t, tc.bus)); got != tc.want {
			t.Errorf("%s, %s: got %q, want %q", tc.cluster, tc.bus, got, tc.want)
		}
	}
}

// TestHashIsInPlace: a hash that was copied from elsewhere is not right.
func TestHashIsInPlace(t *testing.T) {
	f := form{key: redactionKey}
	at := func(p secretPlace) any { return f.hashed(p, "hunter2") }
	p := secretPlace{"n", "s", "data", "password"}
	for _, other := range []secretPlace{{"m", "s", "data", "password"}, {"n", "t", "data", "password"}, {"n", "s", "stringData", "password"}, {"n", "s", "data", "token"}} {
		if at(p) == at(other) {
			t.Errorf("the same in %v and %v", p, other)
		}
	}
	encoded := base64.StdEncoding.EncodeToString(fmt.Append(nil, at(p)))
	if f.asHash(p, encoded) != at(p) {
		t.Error("a hash is not recognized")
	}
}

func textOf(t *testing.T, o *event.Object) string {
	t.Helper()
	text, err := o.Body.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

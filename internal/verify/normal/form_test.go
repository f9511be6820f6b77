package normal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/projection"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

func mustDecode(t testing.TB, s string) tree {
	t.Helper()
	v, err := wire.ParseTree([]byte(s))
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
			if DigestOf(mustDecode(t, same[0])) != DigestOf(mustDecode(t, s)) {
				t.Errorf("%s and %s differ", same[0], s)
			}
		}
	}
	seen := map[Digest]string{}
	for _, s := range []string{
		`{}`, `{"a":1}`, `{"a":"1"}`, `{"a":true}`, `{"a":false}`, `{"a":null}`, `{"a":{}}`, `{"a":[]}`, `{"a":[1]}`, `{"a":[[1]]}`, `{"a":[1,null]}`,
		`{"a":"n"}`, `{"a":""}`, `{"":""}`, `{"a":{"b":1}}`, `{"a":{},"b":1}`, `{"ab":1}`, `{"a":10}`, `{"a":0.1}`, `{"a":-1}`, `{"a":1,"b":1}`,
		`{"a":["b","c"]}`, `{"a":["c","b"]}`, `{"a":["bc"]}`, `{"a":12345678901234567890}`, `{"a":12345678901234567891}`,
		`{"a":1e99999999999}`, `{"a":1e99999999998}`, `{"a":"s"}`, `{"a":1.5}`, `{"A":1}`,
	} {
		d := DigestOf(mustDecode(t, s))
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s do not differ", s, other)
		}
		seen[d] = s
	}
}

// TestEveryFieldCounts verifies that two objects differ if any one of their values differs.
func TestEveryFieldCounts(t *testing.T) {
	const object = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","generateName":"a-","namespace":"b","uid":"c","resourceVersion":"1",
		"generation":2,"creationTimestamp":"d","deletionTimestamp":"e","deletionGracePeriodSeconds":3,"selfLink":"f","labels":{"g":"h"},"annotations":{"i":"j"},
		"finalizers":["k"],"ownerReferences":[{"apiVersion":"v1","kind":"l","name":"m","uid":"n","controller":true,"blockOwnerDeletion":false}]},
		"spec":{"replicas":1,"paused":null},"status":{"replicas":1,"observedGeneration":2,"conditions":[{"type":"o","status":"p"}]},
		"data":{"q":"r"},"binaryData":{"s":"t"},"immutable":true}`
	left := 0
	var change func(v any) any // changes a value that is neither an object nor an array, after it has passed left others
	change = func(v any) any {
		switch v := v.(type) {
		case tree:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				v[name] = change(v[name])
			}
		case []any:
			for i := range v {
				v[i] = change(v[i])
			}
		default:
			if left--; left == -1 {
				return "changed"
			}
		}
		return v
	}
	digest := func(o tree) Digest {
		Form{}.Strip("apps/v1", "Deployment", o)
		Form{}.OfCluster("deployments.apps", o, nil)
		return DigestOf(o)
	}
	for n := 0; ; n++ {
		o := mustDecode(t, object)
		left = n
		change(o)
		if left >= 0 {
			break // o has only n values
		}
		if digest(o) == digest(mustDecode(t, object)) {
			t.Errorf("value %d makes no difference", n)
		}
	}
}

func TestDecode(t *testing.T) {
	for _, s := range []string{``, `null`, `[]`, `1`, `"a"`, `{`, `{}{}`, `{} x`, `{"a":01}`, "{\"a\":\"\x01\"}"} {
		if v, err := wire.ParseTree([]byte(s)); err == nil {
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
			return // too large for math/big, which would compute the number
		}
		x, ok := new(big.Rat).SetString(s)
		y, ok2 := new(big.Rat).SetString(normal)
		if !ok || !ok2 || x.Cmp(y) != 0 {
			t.Errorf("%s becomes %s", s, normal)
		}
	})
}

// FuzzDigest verifies that the digest does not depend on the spelling of JSON, and that no input
// causes a panic.
func FuzzDigest(f *testing.F) {
	f.Add(`{"a":[1,"x",{"b":null}],"c":1.50}`)
	f.Add(`{"data":{"a":"aG1hYy1zaGEyNTY6"},"metadata":{"annotations":{"a":1}},"stringData":[]}`)
	f.Fuzz(func(t *testing.T, s string) {
		v, err := wire.ParseTree([]byte(s))
		if err != nil {
			return
		}
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		again, err := wire.ParseTree(b)
		if err != nil || DigestOf(again) != DigestOf(v) {
			t.Errorf("%q: %v", s, err)
		}
		if where := Differences(v, again); where != "" {
			t.Errorf("%q: %s", s, where)
		}
		Form{}.Strip("", "", again)
		Form{}.OfCluster("", again, nil)
		Form{}.OfBus("secrets", v)
	})
}

var (
	configMaps   = event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	secrets      = event.Resource{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true}
	redactionKey = []byte("0123456789abcdef")
)

const clusterSecret = `{"metadata":{"name":"s","namespace":"n","uid":"u","resourceVersion":"7","managedFields":[{}],
	"labels":{"team":"a","helm.sh/chart":"web-1"},"annotations":{"plain":"text","copy":"{\"x\":1}","kubectl.kubernetes.io/last-applied-configuration":"{}"}},
	"data":{"password":"aHVudGVyMg==","empty":""},"type":"Opaque"}`

// TestSecret verifies that this package and the converter of the forwarder agree about a Secret,
// with and without the key. The two share no code.
func TestSecret(t *testing.T) {
	converted, err := decode.NewConverter(redactionKey, "prod").Decoder(secrets, nil, nil, decode.Shape{}).Decode([]byte(clusterSecret))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		key    []byte
		change func(cluster, bus tree)
		same   bool
		plain  bool

		cluster string
	}{
		"with the key":                              {redactionKey, func(_, _ tree) {}, true, false, ""},
		"without the key":                           {nil, func(_, _ tree) {}, true, false, ""},
		"with another key":                          {[]byte("another"), func(_, _ tree) {}, false, false, ""},
		"of another cluster":                        {redactionKey, func(_, _ tree) {}, false, false, "eu"},
		"a label, with the key":                     {redactionKey, func(c, _ tree) { c["metadata"].(tree)["labels"].(tree)["team"] = "b" }, false, false, ""},
		"a label's name, with the key":              {redactionKey, func(c, _ tree) { c["metadata"].(tree)["labels"] = tree{"crew": "a", "helm.sh/chart": "web-1"} }, false, false, ""},
		"a well-known label, without the key":       {nil, func(c, _ tree) { c["metadata"].(tree)["labels"].(tree)["helm.sh/chart"] = "web-2" }, false, false, ""},
		"a plain label on the bus":                  {redactionKey, func(_, b tree) { b["metadata"].(tree)["labels"].(tree)["team"] = "a" }, false, true, ""},
		"a plain label on the bus, without the key": {nil, func(_, b tree) { b["metadata"].(tree)["labels"].(tree)["team"] = "a" }, false, true, ""},
		"a plain label beside hashes, without a key": {nil, func(_, b tree) {
			labels := b["metadata"].(tree)["labels"].(tree)
			labels[hashPrefix+strings.Repeat("0", 64)] = "a"
		}, false, true, ""},
		"a plain annotation on the bus":        {nil, func(_, b tree) { b["metadata"].(tree)["annotations"].(tree)["plain"] = "x" }, false, true, ""},
		"other value, with the key":            {redactionKey, func(c, _ tree) { c["data"].(tree)["password"] = "b3RoZXI=" }, false, false, ""},
		"other value, without the key":         {nil, func(c, _ tree) { c["data"].(tree)["password"] = "b3RoZXI=" }, true, false, ""},
		"other name, without the key":          {nil, func(c, _ tree) { c["data"].(tree)["token"] = "b3RoZXI=" }, false, false, ""},
		"other annotation, with the key":       {redactionKey, func(c, _ tree) { c["metadata"].(tree)["annotations"].(tree)["plain"] = "x" }, false, false, ""},
		"other long annotation, with the key":  {redactionKey, func(c, _ tree) { c["metadata"].(tree)["annotations"].(tree)["copy"] = "{}" }, false, false, ""},
		"other annotation, without the key":    {nil, func(c, _ tree) { c["metadata"].(tree)["annotations"].(tree)["plain"] = "x" }, true, false, ""},
		"other type":                           {redactionKey, func(c, _ tree) { c["type"] = "other" }, false, false, ""},
		"other type, without the key":          {nil, func(c, _ tree) { c["type"] = "other" }, false, false, ""},
		"plain on the bus":                     {redactionKey, func(c, b tree) { b["data"].(tree)["password"] = c["data"].(tree)["password"] }, false, true, ""},
		"plain on the bus, without the key":    {nil, func(c, b tree) { b["data"].(tree)["password"] = c["data"].(tree)["password"] }, false, true, ""},
		"stringData on the bus, without a key": {nil, func(_, b tree) { b["stringData"] = tree{"password": "hunter2"} }, false, true, ""},
		"a number on the bus":                  {nil, func(_, b tree) { b["data"].(tree)["password"] = json.Number("7") }, false, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, b := mustDecode(t, clusterSecret), mustDecode(t, textOf(t, converted))
			tc.change(c, b)
			f := Form{Key: tc.key, Cluster: cmp.Or(tc.cluster, "prod")}
			f.Strip("v1", "Secret", c)
			f.OfCluster("secrets", c, nil)
			plain := f.OfBus("secrets", b)
			if same := DigestOf(c) == DigestOf(b); same != tc.same {
				t.Errorf("same is %t; differences: %s", same, Differences(c, b))
			}
			if plain != tc.plain {
				t.Errorf("a plain value is found: %t", !tc.plain)
			}
			if out, _ := json.Marshal(c); bytes.Contains(out, []byte("aHVudGVyMg")) {
				t.Errorf("the value is left: %s", out)
			}
		})
	}
}

// TestConverted verifies that this package and the converter of the forwarder agree about an
// object.
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
		`{"metadata":{"name":"x"},"data":{"copy":"hmac-sha256:` + strings.Repeat("0f", 32) + `"}}`, // copied from the bus
	} {
		o, err := decode.NewConverter(nil, "").Decoder(configMaps, nil, nil, decode.Shape{}).Decode([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		c, b := mustDecode(t, s), mustDecode(t, textOf(t, o))
		Form{}.Strip("v1", "ConfigMap", c)
		Form{}.OfCluster("configmaps", c, nil)
		Form{}.OfBus("configmaps", b)
		if where := Differences(c, b); where != "" {
			t.Errorf("%s: %s", s, where)
		}
	}
}

// TestHashedFields verifies that this package and the forwarder agree about fields that the
// configuration drops and hashes, with and without the key.
func TestHashedFields(t *testing.T) {
	drop, err := projection.ParseDrop([]string{"*:.l[?(@.n==1)]", "*:.gone.a"})
	if err != nil {
		t.Fatal(err)
	}
	hash, err := projection.ParseHash([]string{"*:.text", "*:.number", "*:.object", "*:.l[*].v", "*:.gone", "*:.m[*]", "*:.data", "*:.metadata.labels.a"})
	if err != nil {
		t.Fatal(err)
	}
	const text = `{"metadata":{"name":"x","namespace":"n","labels":{"a":"b","helm.sh/chart":"c"}},"text":"<&>\u2028","number":1.50,"object":{"b":[1,"<"],"a":null},
		"l":[{"n":1,"v":"dropped"},{"n":2,"v":"left"},{"n":3,"v":"left"}],"gone":{"a":1},"m":{"x":"y"},"data":{"k":"aHVudGVyMg=="}}`
	for _, r := range []event.Resource{configMaps, secrets, {Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget"}} {
		shape := drop.And(hash).For(r)
		o, err := decode.NewConverter(redactionKey, "prod").Decoder(r, nil, nil, shape).Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for name, key := range map[string][]byte{"with the key": redactionKey, "without the key": nil} {
			f := Form{Key: key, Cluster: "prod"}
			c, b := mustDecode(t, text), mustDecode(t, textOf(t, o))
			f.Strip(r.APIVersion(), r.Kind, c)
			f.OfCluster(r.GroupResource().String(), c, func(t tree, hash func([]string, any) any) { shape.Project(t, hash) })
			f.OfBus(r.GroupResource().String(), b)
			if where := Differences(c, b); where != "" {
				t.Errorf("%s, %s: %s", r.Resource, name, where)
			}
		}
		for _, plain := range []string{"dropped", "left", "hunter2", `"y"`, "1.5", "aHVudGVyMg=="} {
			if strings.Contains(textOf(t, o), plain) {
				t.Errorf("%s: %s is published: %s", r.Resource, plain, textOf(t, o))
			}
		}
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

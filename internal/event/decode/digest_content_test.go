package decode

import (
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

func digestOfText(t *testing.T, text string) event.Digest {
	t.Helper()
	d, err := DigestOf(event.JSON([]byte(text)))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDigestCoversPublishedContent verifies that the digest covers the published content, except
// for fields that change together with dropped fields.
func TestDigestCoversPublishedContent(t *testing.T) {
	const text = `{"metadata":{"name":"web","uid":"A","resourceVersion":"10","generation":3},"spec":{"n":1.50,"generation":3,"resourceVersion":"10"}}`
	for name, c := range map[string]struct {
		old, new string
		same     bool
	}{
		"itself":                            {"", "", true},
		"another resourceVersion":           {`"uid":"A","resourceVersion":"10"`, `"uid":"A","resourceVersion":"11"`, true},
		"without a resourceVersion":         {`"uid":"A","resourceVersion":"10"`, `"uid":"A"`, true},
		"another generation":                {`,"generation":3}`, `,"generation":4}`, true},
		"without a generation":              {`,"generation":3}`, `}`, true},
		"another order, and spaces":         {`"name":"web","uid":"A"`, `"uid" : "A", "name":"web"`, true},
		"another uid":                       {`"uid":"A"`, `"uid":"B"`, false},
		"another label":                     {`"uid":"A"`, `"uid":"A","labels":{"a":"b"}`, false},
		"another number":                    {`1.50`, `1.51`, false},
		"a generation that is not its own":  {`1.50,"generation":3`, `1.50,"generation":4`, false},
		"a resourceVersion that is not its": {`"resourceVersion":"10"}}`, `"resourceVersion":"11"}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			other := strings.Replace(text, c.old, c.new, 1)
			if c.old != "" && other == text {
				t.Fatal("nothing is replaced")
			}
			if same := digestOfText(t, text) == digestOfText(t, other); same != c.same {
				t.Errorf("the same digest: %v, want %v", same, c.same)
			}
		})
	}
}

// TestTextDigest verifies that the digest covers the published text, but not the parts that are cut
// out.
func TestTextDigest(t *testing.T) {
	digest := func(r event.Resource, key []byte, text string) event.Digest {
		t.Helper()
		o, err := NewConverter(key, "").Decoder(r, event.NewPacker(), nil, Shape{}).Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return o.Digest
	}
	const text = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","uid":"A","resourceVersion":"10"},"spec":1}`
	is := digest(deployments, nil, text)
	if is.None() || is.Projected() || len(is.String()) != 16 {
		t.Errorf("the digest is %q, want 16 digits", is)
	}
	for other, same := range map[string]bool{
		strings.Replace(text, `"uid":"A"`, `"uid":"A","managedFields":[{"manager":"a"}]`, 1): true,
		strings.Replace(text, `{"kind":"Deployment","apiVersion":"apps/v1",`, `{`, 1):        true, // as an item of a list
		strings.Replace(text, `"10"`, `"11"`, 1):                                             false,
		strings.Replace(text, `"spec":1`, `"spec":1,"new":2`, 1):                             false,
	} {
		if got := digest(deployments, nil, other); (got == is) != same {
			t.Errorf("%s: the same digest: %v, want %v", other, got == is, same)
		}
	}
	secrets := event.Resource{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true}
	const secret = `{"metadata":{"name":"web","uid":"A","resourceVersion":"10"},"data":{"a":"Yg=="}}`
	if got := digest(secrets, nil, secret); got.None() || got != digest(secrets, nil, secret) {
		t.Errorf("with a random key, the digest %s changes with each start", got)
	}
	if got := digest(secrets, []byte("key"), secret); got.None() || got != digest(secrets, []byte("key"), secret) {
		t.Errorf("the digest of a Secret %q changes", got)
	}
}

// TestABodyWithADigestHasAllMetadata verifies that computing the digest does not change the body.
// The digest is computed first, from the same tree.
func TestABodyWithADigestHasAllMetadata(t *testing.T) {
	shape := Shape{Drops: true, Project: func(object map[string]any, _ Hash) bool { delete(object, "status"); return true }}
	o, err := NewConverter(nil, "").Decoder(deployments, nil, nil, shape).Decode([]byte(
		`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","uid":"A","resourceVersion":"10","generation":3},"spec":1,"status":2}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"generation":3,"name":"web","resourceVersion":"10","uid":"A"},"spec":1}`
	if got := textOf(o); got != want {
		t.Errorf("body:\n got %s\nwant %s", got, want)
	}
	if o.Digest.None() || o.Digest != digestOfText(t, want) {
		t.Errorf("the digest is %s, want that of the body, %s", o.Digest, digestOfText(t, want))
	}
}

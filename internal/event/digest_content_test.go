package event

import (
	"strings"
	"testing"
)

func digestOfText(t *testing.T, text string) Digest {
	t.Helper()
	d, err := DigestOf(JSON([]byte(text)))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDigestIsOfWhatIsSent, but for what changes with what is left out.
func TestDigestIsOfWhatIsSent(t *testing.T) {
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

// TestABodyWithADigestHasAllMetadata: the digest is made before the body, of the same tree.
func TestABodyWithADigestHasAllMetadata(t *testing.T) {
	shape := Shape{Project: func(object map[string]any) bool { delete(object, "status"); return true }}
	o, err := NewConverter(nil).Decoder(deployments, nil, nil, shape).Decode([]byte(
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

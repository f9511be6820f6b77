package decode

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// canary is a value of a Secret.
const canary = "canary-1"

func canarySecret() []byte {
	return []byte(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"db","namespace":"default","labels":{"team":"a"},"annotations":{"copy":"see ` + canary + `","helm.sh/chart":"plain"}},"data":{"password":"` +
		base64.StdEncoding.EncodeToString([]byte(canary)) + `"}}`)
}

// TestASecretIsShaped verifies that a filter and a projection see the true labels of a Secret, but
// only hashes in place of its values. The published object has no value of the Secret, whatever the
// projection drops or hashes.
func TestASecretIsShaped(t *testing.T) {
	see := func(who string, object map[string]any) {
		t.Helper()
		metadata, _ := object["metadata"].(map[string]any)
		labels, _ := metadata["labels"].(map[string]any)
		if labels["team"] != "a" {
			t.Errorf("%s does not see the label: %v", who, labels)
		}
		if text, _ := json.Marshal(object["data"]); strings.Contains(string(text), base64.StdEncoding.EncodeToString([]byte(canary))) {
			t.Errorf("%s sees the value: %s", who, text)
		}
	}
	selects := func(object map[string]any) (bool, error) { see("Select", object); return true, nil }
	for name, shape := range map[string]Shape{
		"projected": {Drops: true, Project: func(object map[string]any, _ Hash) bool { see("Project", object); delete(object, "data"); return true }},
		"hashed": {Project: func(object map[string]any, hash Hash) bool {
			object["data"] = hash([]string{"data"}, object["data"])
			return false
		}},
		"selected":               {Select: selects},
		"selected and projected": {Select: selects, Drops: true, Project: func(object map[string]any, _ Hash) bool { see("Project", object); delete(object, "data"); return true }},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := NewConverter([]byte("key"), "").Decoder(secrets, nil, nil, shape).Decode(canarySecret())
			if err != nil {
				t.Fatal(err)
			}
			body := textOf(o)
			checkNoCanary(t, "the body", []byte(body))
			if !strings.Contains(body, `"helm.sh/chart":"plain"`) {
				t.Errorf("a well-known annotation is missing or hashed: %s", body)
			}
			if dropped := !strings.Contains(body, "password"); dropped != shape.Drops {
				t.Errorf("data dropped: %v: %s", dropped, body)
			}
		})
	}
	o, err := NewConverter(nil, "").Decoder(secrets, nil, nil, Shape{Select: func(map[string]any) (bool, error) { return false, nil }}).Decode(canarySecret())
	if err != nil || !o.Unselected {
		t.Errorf("a filter selects nothing: %v, %v", o, err)
	}
}

// TestFilterFailed verifies that an object for which the filter returns an error is selected, and that
// its FilterFailed is set.
func TestFilterFailed(t *testing.T) {
	for _, failed := range []error{nil, errors.New("no such key")} {
		o, err := NewConverter(nil, "").Decoder(secrets, nil, nil, Shape{Select: func(map[string]any) (bool, error) { return true, failed }}).Decode(canarySecret())
		if err != nil {
			t.Fatal(err)
		}
		if o.Unselected || o.FilterFailed != (failed != nil) {
			t.Errorf("%v: unselected is %v, and filter failed is %v", failed, o.Unselected, o.FilterFailed)
		}
	}
}

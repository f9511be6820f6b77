package event

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// canary is a value of a Secret. An annotation that copies it is redacted because of data,
// which a projection may leave out.
const canary = "canary-1"

func canarySecret() []byte {
	return []byte(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"db","namespace":"default","annotations":{"copy":"see ` + canary + `","other":"plain"}},"data":{"password":"` +
		base64.StdEncoding.EncodeToString([]byte(canary)) + `"}}`)
}

// holds tells whether a text has the canary, in either form.
func holds(text string) bool {
	return strings.Contains(text, canary) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(canary)))
}

// TestASecretIsRedactedBeforeItIsShaped: a projection that drops data must not take away
// what tells which annotations are copies, and a filter must not see a value, nor decide
// by one.
func TestASecretIsRedactedBeforeItIsShaped(t *testing.T) {
	dropData := func(object map[string]any) bool { delete(object, "data"); return true }
	for name, shape := range map[string]Shape{
		"projected":              {Project: dropData},
		"selected":               {Select: func(map[string]any) bool { return true }},
		"selected and projected": {Select: func(map[string]any) bool { return true }, Project: dropData},
	} {
		t.Run(name, func(t *testing.T) {
			see := func(who string, object map[string]any) {
				text, err := json.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				if holds(string(text)) {
					t.Errorf("%s sees the value: %s", who, text)
				}
			}
			seen, watching := 0, Shape{}
			if shape.Select != nil {
				watching.Select = func(object map[string]any) bool {
					seen++
					see("Select", object)
					if _, whole := object["data"].(map[string]any); !whole {
						t.Error("Select does not see what is dropped")
					}
					return shape.Select(object)
				}
			}
			if shape.Project != nil {
				watching.Project = func(object map[string]any) bool { seen++; see("Project", object); return shape.Project(object) }
			}
			o, err := NewConverter([]byte("key")).Decoder(secrets, nil, nil, watching).Decode(canarySecret())
			if err != nil {
				t.Fatal(err)
			}
			if seen == 0 {
				t.Error("the shape was not asked")
			}
			body := textOf(o)
			if holds(body) {
				t.Errorf("the value is in the body: %s", body)
			}
			if !strings.Contains(body, `"other":"plain"`) {
				t.Errorf("an annotation that is no copy is gone or hashed: %s", body)
			}
			if dropped := !strings.Contains(body, "password"); dropped != (shape.Project != nil) {
				t.Errorf("data dropped: %v: %s", dropped, body)
			}
		})
	}
}

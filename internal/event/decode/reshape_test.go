package decode

import (
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

// hideValues drops data.a and hashes data.b.
var hideValues = Shape{Drops: true, Project: func(object map[string]any, hash Hash) bool {
	data, _ := object["data"].(map[string]any)
	if v, ok := data["b"]; ok {
		data["b"] = hash([]string{"data", "b"}, v)
	}
	_, dropped := data["a"]
	delete(data, "a")
	return dropped
}}

// TestAStateFromTheBusIsReshaped verifies that a state that an earlier configuration published is
// published again in the current form, both as a previous state and as the last state in a delete.
func TestAStateFromTheBusIsReshaped(t *testing.T) {
	converter := NewConverter([]byte("key"), "k")
	configMaps := event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	text := func(r event.Resource, version, rest string) string {
		return `{"apiVersion":"v1","kind":"` + r.Kind + `","metadata":{"name":"c","namespace":"n","uid":"u","resourceVersion":"` + version + `"` + rest + `}`
	}
	for name, tc := range map[string]struct {
		r           event.Resource
		shape       Shape
		live, onBus string
	}{
		"dropped and hashed": {configMaps, hideValues, `},"data":{"a":"hunter1","b":"hunter2","c":"2"}`, `},"data":{"a":"hunter1","b":"hunter2","c":"1"}`},
		"a Secret of an earlier release": {secrets, Shape{}, `,"annotations":{"note":"hunter2"}},"data":{"b":"aHVudGVyMg=="}`,
			`,"annotations":{"note":"hunter2","more":"hmac-sha256:` + strings.Repeat("ab", 32) + `"}},"data":{"b":"` + b64("hmac-sha256:"+strings.Repeat("cd", 32)) + `"}`},
		"a Secret with a value": {secrets, Shape{}, `},"data":{"b":"aHVudGVyMg=="}`, `},"data":{"b":"aHVudGVyMQ=="},"stringData":{"c":"hunter1"}`},
		"with a random key":     {secrets, Shape{}, `},"data":{"b":"aHVudGVyMg=="}`, `,"labels":{"hunter2":"x"}},"data":{"b":"` + b64("hmac-sha256:"+strings.Repeat("cd", 32)) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "random") {
				converter = NewConverter(nil, "k")
			}
			live, err := converter.Decoder(tc.r, nil, nil, tc.shape).Decode([]byte(text(tc.r, "2", tc.live)))
			if err != nil {
				t.Fatal(err)
			}
			onBus := func() *event.Object {
				return &event.Object{APIVersion: "v1", Kind: tc.r.Kind, Namespace: "n", Name: "c", UID: "u", ResourceVersion: "1", Body: event.JSON([]byte(text(tc.r, "1", tc.onBus))), Digest: event.Digest{7}}
			}
			b := event.Builder{Cluster: "k", Data: event.DataChange, Reshape: func(r event.Resource, o *event.Object) *event.Object { return converter.Reshape(o, r, tc.shape) }}
			for what, c := range map[string]event.Change{
				"update": {Type: event.Updated, Object: live, Before: onBus(), Previous: "1"},
				"delete": {Type: event.Deleted, Object: onBus(), Previous: "1"},
			} {
				c.Cause, c.Key, c.Resource, c.Observed = event.CauseReconcile, tc.r.Key("n", "c"), tc.r, observed
				m, err := b.Message(c)
				if err != nil {
					t.Fatal(err)
				}
				data := string(m.Data)
				for _, value := range []string{"hunter", "aHVudGVy"} {
					if strings.Contains(data, value) {
						t.Errorf("%s: a value goes out: %s", what, data)
					}
				}
				if what == "update" && strings.Contains(data, `"previous":null`) {
					t.Errorf("the previous state is missing: %s", data)
				}
				if what == "delete" && (m.Attribute("finalstateunknown") != "" || m.Attribute("digest") == (event.Digest{7}).String()) {
					t.Errorf("the delete has the attributes %v", m.Attributes)
				}
			}
		})
	}
}

// TestAStateInThePresentFormStays verifies that a state in the current form stays unchanged, byte
// for byte, and keeps its digest.
func TestAStateInThePresentFormStays(t *testing.T) {
	c := NewConverter([]byte("key"), "k")
	for name, tc := range map[string]struct {
		r     event.Resource
		shape Shape
		text  string
	}{
		"a Secret":        {secrets, Shape{}, secretJSON},
		"a shaped object": {event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}, hideValues, `{"metadata":{"name":"c"},"data":{"a":"1","b":"2","z":"3","c":"4"}}`},
		"another object":  {pods, Shape{}, `{"spec":{"b":1,"a":2},"metadata":{"name":"c"}}`},
	} {
		o, err := c.Decoder(tc.r, nil, nil, tc.shape).Decode([]byte(tc.text))
		if err != nil {
			t.Fatal(err)
		}
		again := c.Reshape(o, tc.r, tc.shape)
		if textOf(again) != textOf(o) || again.Digest != o.Digest {
			t.Errorf("%s: %s\nbecomes %s", name, textOf(o), textOf(again))
		}
	}
}

// TestAStateThatIsNoJSONGoesOutAsIdentity verifies that a delete is published even if the last
// state cannot be decoded.
func TestAStateThatIsNoJSONGoesOutAsIdentity(t *testing.T) {
	c := NewConverter([]byte("key"), "k")
	b := event.Builder{Cluster: "k", Reshape: func(r event.Resource, o *event.Object) *event.Object { return c.Reshape(o, r, Shape{}) }}
	m, err := b.Message(event.Change{Type: event.Deleted, Cause: event.CauseReconcile, Key: secrets.Key("n", "c"), Resource: secrets, Observed: observed,
		Object: &event.Object{Namespace: "n", Name: "c", UID: "u", ResourceVersion: "1", Body: event.JSON([]byte(`{"data":{"a":"hunter2"`))}})
	if err != nil || m.Attribute("finalstateunknown") != "true" || strings.Contains(string(m.Data), "hunter") {
		t.Errorf("got %+v, %v", m, err)
	}
}

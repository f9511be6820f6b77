package verify

import (
	"encoding/json"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// body returns a modifier that changes a copy of the object's data.
func body(change func(tree)) func(*event.Change) {
	return func(c *event.Change) {
		o := *c.Object
		text, err := o.Body.JSON()
		if err != nil {
			panic(err)
		}
		t, err := wire.ParseTree(text)
		if err != nil {
			panic(err)
		}
		change(t)
		if text, err = json.Marshal(t); err != nil {
			panic(err)
		}
		o.Body = event.JSON(text)
		c.Object = &o
	}
}

// as returns a modifier that sets the uid and version of a change's object everywhere they occur.
func as(uid, version string) func(*event.Change) {
	return func(c *event.Change) {
		body(func(t tree) {
			m := t["metadata"].(tree)
			m["uid"], m["resourceVersion"] = uid, version
		})(c)
		c.Object.UID, c.Object.ResourceVersion = types.UID(uid), version
	}
}

func previous(version string) func(*event.Change) {
	return func(c *event.Change) { c.Previous = version }
}

func epochOf(n uint16) func(*event.Change) { return func(c *event.Change) { c.Epoch = n } }

func plus(version string, n int) string {
	v, _ := strconv.Atoi(version)
	return strconv.Itoa(v + n)
}

// raw publishes a message with the headers of an event, after applying the given changes.
func (w *world) raw(on string, o *unstructured.Unstructured, change map[string]string) {
	w.t.Helper()
	c, err := w.convert(configMaps, o)
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := w.builder.Message(event.Change{
		Type: event.Created, Cause: event.CauseWatch, Key: configMaps.Key(o.GetNamespace(), o.GetName()), Resource: configMaps, Object: c, Observed: time.Now(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if on == "" {
		on = subject.Object("kuberelay", clusterName, m.Key)
	}
	msg := natsgo.NewMsg(on)
	msg.Data = m.Data
	for _, a := range m.Attributes {
		msg.Header["ce-"+a.Name] = []string{a.Value}
	}
	for name, value := range change {
		if name != "KV-Operation" {
			name = "ce-" + name
		}
		if msg.Header[name] = []string{value}; value == "" {
			delete(msg.Header, name)
		}
	}
	if _, err := w.js.PublishMsg(w.t.Context(), msg); err != nil {
		w.t.Fatal(err)
	}
}

// remove deletes one message from the stream.
func (w *world) remove(position uint64) {
	w.t.Helper()
	s, err := w.js.Stream(w.t.Context(), "KUBERELAY")
	if err == nil {
		err = s.DeleteMsg(w.t.Context(), position)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

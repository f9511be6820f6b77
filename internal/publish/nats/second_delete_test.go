package nats

import (
	"errors"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestASecondDelete verifies that a second delete of an object is not mistaken for the first one.
// Here, an object outlived its delete, and the bus lost the create that recorded that. The second
// delete has the same ID as the first one. An earlier version treated it as already stored.
func TestASecondDelete(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}, History: 8})
	k := event.Key{Resource: "configmaps", Namespace: "default", Name: "web"}
	r := event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	message := func(ty event.Type, version string, expected, after uint64) *event.Message {
		m, err := event.Builder{Cluster: publishtest.Cluster}.Message(event.Change{
			Type: ty, Key: k, Resource: r, Cause: event.CauseWatch, Observed: time.Now(), After: after,
			Object: &event.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: k.Namespace, Name: k.Name, UID: "A", ResourceVersion: version,
				Body: event.JSON([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","namespace":"default","resourceVersion":"` + version + `","uid":"A"}}`))},
		})
		if err != nil {
			t.Fatal(err)
		}
		m.Expected = expected
		return m
	}
	p1 := publishOK(t, bus, message(event.Created, "5", 0, 0))
	p2 := publishOK(t, bus, message(event.Deleted, "5", p1, 0))
	p3 := publishOK(t, bus, message(event.Created, "5", p2, p2)) // the object outlived the delete
	stream, err := bus.conn.JS.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), p3); err != nil {
		t.Fatal(err)
	}
	at, err := publishNow(t, bus, message(event.Deleted, "9", p3, 0))
	var conflict *publish.ConflictError
	if !errors.As(err, &conflict) {
		t.Errorf("the delete of version 9, which expects %d, counts as stored at %d (%v): that is the earlier delete, of version 5", p3, at, err)
	}
}

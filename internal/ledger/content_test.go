package ledger

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
)

// TestIsStateOf verifies that a delete does not take its last state from a foreign writer's event
// with a copied digest, even if the digest of the entry is not trusted.
func TestIsStateOf(t *testing.T) {
	authentic := event.JSON([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","uid":"A","resourceVersion":"6"},"data":{"a":"b"}}`))
	forged := event.JSON([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","uid":"A","resourceVersion":"6"},"data":{"a":"c"}}`))
	digest, err := decode.DigestOf(authentic)
	if err != nil || !digest.Projected() {
		t.Fatalf("got digest %s, err %v; want a projected one", digest, err)
	}
	acked := live("A", "6")
	for name, c := range map[string]struct {
		body  event.Body
		known event.Digest
		want  bool
	}{
		"authentic":                       {authentic, digest, true},
		"authentic, digest not trusted":   {authentic, event.Digest{}, true},
		"forged":                          {forged, digest, false},
		"forged, digest not trusted":      {forged, event.Digest{}, false},
		"without content, not verifiable": {event.Body{}, digest, true},
	} {
		t.Run(name, func(t *testing.T) {
			acked.Digest = c.known
			o := &event.Object{Namespace: testKey.Namespace, Name: testKey.Name, UID: "A", ResourceVersion: "6", Body: c.body, Digest: digest}
			if got := isStateOf(o, testKey, acked); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

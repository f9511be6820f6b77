package stream

import (
	"encoding/json"
	"testing"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/event"
)

// FuzzParseMessage parses stored messages with arbitrary headers and data. A message that is not a
// valid event must yield only a position and a reason.
func FuzzParseMessage(f *testing.F) {
	f.Add([]byte("NATS/1.0\r\nno colon here\r\n\r\n"), []byte("x"))
	f.Add([]byte("NATS/1.0 503\r\n\r\n"), []byte(""))
	f.Add([]byte("NATS/1.0\r\nce-id: x\r\nce-specversion: 1.0\r\nce-type: io.kuberelay.object.deleted\r\nce-uid: x\r\nce-sequence: 65535.0\r\n\r\n"), []byte(""))
	f.Add([]byte("NATS/1.0\r\nce-id: x\r\nce-specversion: 1.0\r\nce-type: io.kuberelay.cluster.claimed\r\n\r\n"), []byte(`{"uid":"u","epoch":65535}`))
	f.Add([]byte("NATS/1.0\r\ncontent-type: application/cloudevents+json\r\nkuberelay-id: %\r\n\r\n"), []byte(`{"specversion":"1.0","id":"x"}`))
	f.Fuzz(func(t *testing.T, headers, data []byte) {
		answer, err := json.Marshal(map[string]any{"message": map[string]any{"subject": "kuberelay.a", "seq": 7, "hdrs": headers, "data": data}})
		if err != nil {
			t.Fatal(err)
		}
		m, err := ParseMessage(&natsgo.Msg{Data: answer})
		if err != nil || m == nil || m.Sequence != 7 {
			t.Fatalf("a stored message is %+v, %v", m, err)
		}
		acked, err := m.Acked()
		if err != nil && (acked.UID != "" || acked.Epoch != 0 || acked.Position != 7) {
			t.Errorf("%+v comes with the error %v", acked, err)
		}
		if err == nil && acked.Validate() != nil {
			t.Errorf("took %+v", acked)
		}
		if decoded, err := m.Decode(); err == nil {
			if c, err := event.ClaimFrom(decoded); err == nil && c.Epoch > event.LastEpoch {
				t.Errorf("took %+v", c)
			}
		}
	})
}

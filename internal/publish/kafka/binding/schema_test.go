package binding

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
	"github.com/kuberelay/kuberelay/test/lab/schematest"
)

// TestSchemas verifies that docs/schemas/asyncapi.yaml describes the headers and the value of
// every record.
func TestSchemas(t *testing.T) {
	check := func(name string, r recordbatch.Record) {
		t.Helper()
		headers := map[string]string{}
		for _, h := range r.Headers {
			headers[h.Key] = string(h.Value)
		}
		schematest.CheckMessage(t, name, headers, r.Value)
	}
	for _, typed := range publishtest.EveryType(t) {
		if typed.Message.Marker { // a marker has the same form in both modes
			r, err := EncodeControl(typed.Message)
			if err != nil {
				t.Fatal(err)
			}
			check(typed.Type+"OnKafka", r)
			continue
		}
		check(typed.Type+"OnKafka", mustEncode(t, typed.Message, false))
		check(typed.Type+"OnKafkaStructured", mustEncode(t, typed.Message, true))
		if typed.Message.Acked.Deleted {
			check("tombstoneOnKafka", *Tombstone(typed.Message))
		}
	}
}

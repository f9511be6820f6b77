package binding

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
	"github.com/kuberelay/kuberelay/test/lab/schematest"
)

// TestSchemas verifies that docs/schemas/asyncapi.yaml describes the headers and body of every
// message.
func TestSchemas(t *testing.T) {
	for _, typed := range publishtest.EveryType(t) {
		if event.Type(typed.Message.Attribute("type")) == event.WriterStarted {
			continue // only on Kafka
		}
		for _, structured := range []bool{false, true} {
			msg, err := Encode(typed.Message, structured, NewHeader())
			if err != nil {
				t.Fatal(err)
			}
			headers, name := map[string]string{}, typed.Type+"OnNATS"
			for header, values := range msg.Header {
				headers[header] = values[0]
			}
			if structured {
				name += "Structured"
			}
			schematest.CheckMessage(t, name, headers, msg.Data)
		}
	}
}

package kafka

import (
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// encode returns the record of an event or a marker in an event topic. The sender replaces the
// timestamp of the record. encode rejects a key that readers would reject, see [event.MaxText].
func (b *Bus) encode(m *event.Message) (r recordbatch.Record, err error) {
	if m.Marker {
		r, err = binding.EncodeControl(m)
	} else {
		r, err = binding.Encode(m, b.opts.ContentMode == Structured)
	}
	if err == nil && len(r.Key) > event.MaxText {
		err = fmt.Errorf("%w: the partition key has %d bytes, and the limit is %d", publish.ErrTooLarge, len(r.Key), event.MaxText)
	}
	return r, err
}

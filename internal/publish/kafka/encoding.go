package kafka

import (
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// encode lays an event out in a record. The record's timestamp is not the event's
// time but the present one: brokers go by it when they forget producers
// (producer.id.expiration.ms, ProducerStateManager.isProducerExpired), and one whose
// last batch seems to be older than a day is not known any more once they start again.
// Its batch is then stored a second time where it is sent again.
func (b *Bus) encode(m *event.Message) (recordbatch.Record, error) {
	r, err := binding.Encode(m, b.opts.ContentMode == Structured)
	r.Timestamp = wallClock()
	return r, err
}

// attributesOf gives the attributes of a record's event.
func attributesOf(r broker.Record) (func(string) string, error) {
	get, _, err := binding.Attributes(r.Headers, r.Value)
	return get, err
}

// decode gives a record's event.
func decode(r broker.Record) (*event.Message, error) { return binding.Decode(r.Headers, r.Value) }

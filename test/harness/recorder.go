package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Recorder reads every message of a bus, even across restarts of the server. It uses none of the
// forwarder's code.
type Recorder interface {
	// TolerateInvalid makes All return messages that aren't CloudEvents. By default, All returns an
	// error if it finds one.
	TolerateInvalid()
	// All returns the messages that the recorder has read so far. On NATS, they have the order of
	// the stream. On Kafka, the messages of each partition have the order of the partition. The
	// result missed reports whether a message was removed before the recorder read it. If so,
	// adjacent messages in the result may not be adjacent on the bus.
	All() (all []Received, missed bool, err error)
	// CatchUp waits until the recorder has read every message that is currently on the bus.
	CatchUp(ctx context.Context, limit time.Duration) error
	// Stored returns a number that grows with every stored message. It is 0 on an empty bus.
	Stored(ctx context.Context) (uint64, error)
	// Close stops reading.
	Close()
}

var _, _ Recorder = (*NATSRecorder)(nil), (*KafkaRecorder)(nil)

// Received is one message as a subscriber sees it.
type Received struct {
	Subject string // the message's subject on NATS, or the record key on Kafka
	Place
	Body []byte // nil for a tombstone, and for a consistency point on Kafka

	Attributes map[string]string // the CloudEvent's attributes, decoded
	Data       []byte            // the CloudEvent's data
	Invalid    error             // the reason why the message isn't a CloudEvent, or nil

	// Producer identifies the writer of a Kafka record. It comes from the record's batch. It is zero
	// if the writer doesn't use the idempotent producer.
	Producer Producer
}

// Producer contains the id and the epoch of a producer. ID is the producer's id plus 1, so that the
// zero value means no producer.
type Producer struct{ ID, Epoch int64 }

// Place is the position of a message on the bus.
type Place struct {
	Topic     string // empty on NATS
	Life      int    // counts the lives of the stream or topic, from 1; each recreation or loss of its end begins another
	Partition int    // 0 on NATS
	Sequence  uint64 // the sequence in the stream, or the offset in the partition
}

func (p Place) String() string {
	text := fmt.Sprint(p.Sequence)
	if p.Topic != "" {
		text = fmt.Sprintf("%s:%d:%d", p.Topic, p.Partition, p.Sequence)
	}
	if p.Life > 1 {
		text += fmt.Sprintf(" of life %d", p.Life)
	}
	return text
}

// Kind returns the last part of the event type, or "" for a tombstone.
func (r *Received) Kind() string {
	t := r.Attributes["type"]
	return t[strings.LastIndexByte(t, '.')+1:]
}

// A header is one header of a message.
type header struct{ name, value string }

// read reads the CloudEvent from the body and the headers. The prefix identifies the headers that
// contain attributes.
func (r *Received) read(headers []header, prefix string, decode func(string) (string, error)) error {
	r.Attributes = map[string]string{}
	for _, h := range headers {
		if h.name == "content-type" && strings.HasPrefix(h.value, "application/cloudevents") {
			return r.readStructured()
		}
	}
	for _, h := range headers {
		attribute, ok := strings.CutPrefix(h.name, prefix)
		if !ok {
			continue
		}
		value, err := decode(h.value)
		if _, again := r.Attributes[attribute]; err != nil || again {
			return fmt.Errorf("header %s of %s is %q", h.name, r.Subject, h.value)
		}
		r.Attributes[attribute] = value
	}
	r.Data = r.Body
	return nil
}

func (r *Received) readStructured() error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(r.Body, &members); err != nil {
		return fmt.Errorf("the event on %s: %w", r.Subject, err)
	}
	for name, value := range members {
		var text string
		switch {
		case name == "data":
			r.Data = value
		case json.Unmarshal(value, &text) == nil:
			r.Attributes[name] = text
		default:
			r.Attributes[name] = string(value)
		}
	}
	return nil
}

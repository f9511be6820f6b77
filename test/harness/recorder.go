package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Recorder reads every message of a bus, also across restarts of the server. It uses none of the
// forwarder's code.
type Recorder interface {
	// TolerateInvalid makes All return messages that aren't CloudEvents. Otherwise All returns an
	// error for them.
	TolerateInvalid()
	// All returns what was read so far: on NATS in the order of the stream, on Kafka in the order
	// of each partition. Missed reports whether a message was removed before it was read. If so,
	// adjacent messages in the result may not be adjacent on the bus.
	All() (all []Received, missed bool, err error)
	// CatchUp waits until everything has been read that is on the bus now.
	CatchUp(ctx context.Context, limit time.Duration) error
	// Stored grows with every stored message. It is 0 on an empty bus.
	Stored(ctx context.Context) (uint64, error)
	// Close stops reading.
	Close()
}

var _, _ Recorder = (*NATSRecorder)(nil), (*KafkaRecorder)(nil)

// Received is one message as a subscriber sees it.
type Received struct {
	Subject string // the subject of the message or the record key
	Place
	Body []byte // nil for a tombstone, and for a consistency point on Kafka

	Attributes map[string]string // of the CloudEvent, decoded
	Data       []byte            // of the CloudEvent
	Invalid    error             // why the message isn't a CloudEvent

	// Producer identifies the writer of a record, from its batch. It is zero for a writer that
	// doesn't produce idempotently.
	Producer Producer
}

// Producer has the id and epoch of a producer. The id is increased by 1, so that the zero value
// means none.
type Producer struct{ ID, Epoch int64 }

// Place is the position of a message.
type Place struct {
	Topic     string // on Kafka
	Life      int    // counts the streams or topics that had this name, from 1
	Partition int    // on Kafka
	Sequence  uint64 // in the stream, or the offset in the partition
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

// Kind returns the last word of the event type, "" for a tombstone.
func (r *Received) Kind() string {
	t := r.Attributes["type"]
	return t[strings.LastIndexByte(t, '.')+1:]
}

// header is a header of a message.
type header struct{ name, value string }

// read reads the event from the body and the headers. The names of attribute headers begin with
// the prefix.
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

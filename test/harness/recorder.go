package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Recorder reads every message of a bus, through restarts of its server, with
// nothing of the forwarder's code between the bus and the test.
type Recorder interface {
	// TolerateInvalid has All return messages that are no CloudEvents. Without it they are
	// an error.
	TolerateInvalid()
	// All is what has been read so far: on NATS in the order of the stream, on Kafka
	// in that of each partition. Missed tells whether a message was removed before it
	// could be read: then what looks like neighbours may be none.
	All() (all []Received, missed bool, err error)
	// CatchUp waits until everything has been read that is on the bus now.
	CatchUp(ctx context.Context, limit time.Duration) error
	// Stored grows with every message that is stored, and is 0 if there is none.
	Stored(ctx context.Context) (uint64, error)
	// Close ends the reading.
	Close()
}

var _, _ Recorder = (*NATSRecorder)(nil), (*KafkaRecorder)(nil)

// Received is one message as a subscriber sees it.
type Received struct {
	Subject string // of the message, or the record's key
	Place          // where it is
	Body    []byte // nil for a tombstone, and for a consistency point on Kafka

	Attributes map[string]string // of the CloudEvent, decoded
	Data       []byte            // of the CloudEvent
	Invalid    error             // why the message is no CloudEvent

	// Producer is who wrote a record, as its batch says; the zero value for nobody who
	// produces idempotently.
	Producer Producer
}

// Producer is a producer's id and epoch, the id plus 1 so that the zero value is none.
type Producer struct{ ID, Epoch int64 }

// Place is where a message is.
type Place struct {
	Topic     string // on Kafka
	Life      int    // which of the streams or topics of this name, in their order, from 1 on
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

// Kind is the last word of the event's type, "" for a tombstone.
func (r *Received) Kind() string {
	t := r.Attributes["type"]
	return t[strings.LastIndexByte(t, '.')+1:]
}

// header is one of a message.
type header struct{ name, value string }

// read reads the event out of the body and the headers, whose attributes' names
// begin with a prefix.
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

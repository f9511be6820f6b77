package simulate

import (
	"slices"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// bus is the model of a JetStream stream. TestModelOfNATS compares it with a real server.
type bus struct {
	messages   []stream.Message // in order of their sequences
	last       uint64           // the last assigned sequence
	lost       uint64           // the highest sequence that was lost, 0 for none
	perSubject int              // maximum number of messages per subject
	down       bool
}

// publish stores a message if the last sequence of its subject is the expected one. It returns the
// sequence of the message, and whether it stored the message.
func (b *bus) publish(subject string, h natsgo.Header, data []byte, expected uint64, now time.Time) (uint64, bool) {
	is := uint64(0)
	if last := b.lastOf(subject); last != nil {
		is = last.Sequence
	}
	if is != expected {
		return 0, false
	}
	return b.store(subject, h, data, now), true
}

// store stores a message.
func (b *bus) store(subject string, h natsgo.Header, data []byte, now time.Time) uint64 {
	b.last++
	b.messages = append(b.messages, stream.Message{Subject: subject, Sequence: b.last, Time: now, Headers: h, Data: data})
	count := 0
	for n := len(b.messages) - 1; n >= 0; n-- {
		if b.messages[n].Subject != subject {
			continue
		}
		if count++; count > b.perSubject {
			b.messages = slices.Delete(b.messages, n, n+1)
			break
		}
	}
	return b.last
}

// lastOf returns the last message of a subject, or nil.
func (b *bus) lastOf(subject string) *stream.Message {
	for n := len(b.messages) - 1; n >= 0; n-- {
		if b.messages[n].Subject == subject {
			return &b.messages[n]
		}
	}
	return nil
}

// at returns the message with a sequence, or nil.
func (b *bus) at(sequence uint64) *stream.Message {
	for n := range b.messages {
		if b.messages[n].Sequence == sequence {
			return &b.messages[n]
		}
	}
	return nil
}

// purge removes the messages of a subject before a sequence.
func (b *bus) purge(subject string, before uint64) {
	b.messages = slices.DeleteFunc(b.messages, func(m stream.Message) bool { return m.Subject == subject && m.Sequence < before })
}

// lose removes the messages after a sequence, like a server that lost the end of its log.
func (b *bus) lose(after uint64) {
	b.messages = slices.DeleteFunc(b.messages, func(m stream.Message) bool { return m.Sequence > after })
	if b.last > after {
		b.lost, b.last = max(b.lost, b.last), after
	}
}

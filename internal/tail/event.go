package tail

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// Event is one event on the bus. Only Key, Marker, Attributes and Data of the message are used.
type Event struct {
	Message *event.Message
	Cluster string
	Stored  time.Time // when the bus stored it

	// The position on the bus, for [States.Ask].
	Subject  string
	Position uint64
	log      publish.Log

	note string // a remark for people
}

// delivery is the inverse of eventOf.
func (e Event) delivery() publish.Delivery {
	return publish.Delivery{Subject: e.Subject, Cluster: e.Cluster, Log: e.log, Position: e.Position, Stored: e.Stored}
}

// JSON returns the whole event as one line in the JSON format of CloudEvents, without a newline at
// its end. It is equal to what was published, except that each character that does not print is a
// JSON escape. It fails if the event has no such form, as an event of another writer can.
func (e Event) JSON() ([]byte, error) {
	b, err := e.Message.Structured()
	if err == nil && !json.Valid(b) { // the name of an attribute can be any text
		err = errors.New("its attributes are not those of a CloudEvent")
	}
	if err != nil {
		return nil, fmt.Errorf("show event %q: %w", e.Message.ID, err)
	}
	return escape(b), nil
}

// escape writes what does not print as \uXXXX. In valid JSON all of that is inside strings.
func escape(b []byte) []byte {
	first := 0
	for first < len(b) && ' ' <= b[first] && b[first] <= '~' {
		first++
	}
	if first == len(b) {
		return b
	}
	escaped := append(make([]byte, 0, len(b)+64), b[:first]...)
	for i := first; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			escaped = append(escaped, `\ufffd`...)
		case unicode.IsPrint(r):
			escaped = append(escaped, b[i:i+size]...)
		case r > 0xffff:
			r -= 0x10000
			escaped = fmt.Appendf(escaped, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		}
		i += size
	}
	return escaped
}

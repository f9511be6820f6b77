package tail

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Event is one event as read from the bus. Of the message Key, Marker, Attributes
// and Data are used.
type Event struct {
	Message *event.Message
	Cluster string
	Stored  time.Time // when the bus took it

	// Where it is, as the bus says it, for [States.Ask].
	Subject  string
	Position uint64

	note string // what else is to be said of it
}

// JSON is the whole event as one line in CloudEvents' JSON format, without a
// newline at its end. It means what was published, but writes each character that
// does not print as an escape of JSON. It fails if the event has no such form,
// which only another writer's can.
func (e Event) JSON() ([]byte, error) {
	b, err := e.Message.Structured()
	if err == nil && !json.Valid(b) { // the name of an attribute may be anything
		err = errors.New("its attributes are not those of a CloudEvent")
	}
	if err != nil {
		return nil, fmt.Errorf("show event %q: %w", e.Message.ID, err)
	}
	return escape(b), nil
}

// escape writes what does not print as \uXXXX. In valid JSON all of that is
// within strings.
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

package tail

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/terminal"
)

// Event is one event on the bus. The package uses only Key, Marker, Attributes, and Data of the
// message, and ID in errors.
type Event struct {
	publish.Delivery

	Message *event.Message
	note    string // a remark that [Text] adds to the line
}

// JSON returns the whole event as one line in the JSON format of CloudEvents, without a newline at
// the end. The line equals the published event, except that unprintable characters are JSON
// escapes. JSON fails for another writer's event that this format cannot represent.
func (e Event) JSON() ([]byte, error) {
	b, err := e.Message.Structured()
	if err == nil && !json.Valid(b) { // the name of an attribute can be any text
		err = errors.New("its attributes are not those of a CloudEvent")
	}
	if err != nil {
		return nil, fmt.Errorf("show event %q: %w", e.Message.ID, err)
	}
	return terminal.Escape(b), nil
}

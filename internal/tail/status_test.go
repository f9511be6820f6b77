package tail

import (
	"errors"
	"strings"
	"testing"
)

// TestStatusHostile verifies that the text of an error, which anyone with access to the bus can choose,
// doesn't control the terminal.
func TestStatusHostile(t *testing.T) {
	var out strings.Builder
	(&Status{W: &out}).notify(errors.New("\x1b[2J, é"))
	if got, want := out.String(), `forwarder: \u001b[2J, é; trying again`+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

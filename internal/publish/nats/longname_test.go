package nats

import (
	"errors"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// An object whose subject is longer than a line of the protocol may be would cost
// the connection, and with it every other object, for good.
func TestALongNameDoesNotCostTheConnection(t *testing.T) {
	b := &Bus{opts: Options{SubjectPrefix: "kuberelay", Cluster: "test"}.withDefaults()}
	b.state.set(0, nil)
	m := odd(t)
	m.Key.Name = strings.Repeat(":", 1400)
	if _, err := b.prepare(m); !errors.Is(err, publish.ErrTooLarge) {
		t.Errorf("got %v, want %v", err, publish.ErrTooLarge)
	}
	m.Key.Name = strings.Repeat(":", 1000)
	if _, err := b.prepare(m); err != nil {
		t.Errorf("a name that fits: %v", err)
	}
}

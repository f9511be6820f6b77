package tail

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

type searched func() (*event.Message, error)

func (f searched) Before(context.Context, string, uint64) (*event.Message, error) { return f() }

// TestPrinterAsksNoMore verifies that after an error, such as a missing permission, Printer sends no
// further request for a previous event until the subscription reconnects. Each request can take
// seconds.
func TestPrinterAsksNoMore(t *testing.T) {
	var stderr bytes.Buffer
	asked := 0
	bus := searched(func() (*event.Message, error) {
		asked++
		return nil, errors.New("no answer")
	})
	p := &Printer{Status: Status{W: &stderr}, states: NewStates()}
	var o publish.SubscribeOptions
	p.lookBack(t.Context(), struct {
		Bus
		searched
	}{searched: bus}, &o)
	ask := func() { p.states.Ask(Event{}) }
	ask()
	ask()
	o.Notify(errors.New("disconnected"))
	ask()
	if asked != 1 || strings.Count(stderr.String(), "no answer; the first update of each object has no diff") != 1 {
		t.Errorf("asked %d times: %q", asked, stderr.String())
	}
	o.Notify(nil)
	ask()
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

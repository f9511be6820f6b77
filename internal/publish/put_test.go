package publish

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

type refusing struct{ Publisher }

func (refusing) Publish(_ context.Context, m *event.Message, done func(uint64, error)) {
	done(0, fmt.Errorf("publish %s: %w", m.ID, ErrTooLarge))
}

// TestPutNamesTheMessageOnce verifies that Put adds nothing to the error of a publisher, which names the
// message. An earlier version logged "publish x: publish x: ...".
func TestPutNamesTheMessageOnce(t *testing.T) {
	err := Put(t.Context(), refusing{}, &event.Message{ID: "x"})
	if want := "publish x: " + ErrTooLarge.Error(); err == nil || err.Error() != want || !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want %s", err, want)
	}
}

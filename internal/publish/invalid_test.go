package publish

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kuberelay/kuberelay/internal/event"
)

// counted returns how many messages were counted for a reason.
func counted(t *testing.T, i *Invalid, reason event.InvalidReason) float64 {
	t.Helper()
	var m dto.Metric
	if err := i.total.WithLabelValues(string(reason)).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func TestInvalid(t *testing.T) {
	var log bytes.Buffer
	i := NewInvalid(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
	err := fmt.Errorf("read: %w", event.Invalid(event.InvalidEpoch, errors.New("too high")))
	for range 3 {
		i.Report("", 7, err, "subject", "a.b")
		i.Report("topic", 7, errors.New("of no reason"))
	}
	for reason, want := range map[event.InvalidReason]float64{event.InvalidEpoch: 1, event.InvalidEvent: 1, event.InvalidData: 0} {
		if got := counted(t, i, reason); got != want {
			t.Errorf("%v of reason %s, want %v", got, reason, want)
		}
	}
	if got := strings.Count(log.String(), "\n"); got != 2 || !strings.Contains(log.String(), "subject=a.b position=7 reason=epoch") {
		t.Errorf("%d lines, want 2: %s", got, log.String())
	}
	(*Invalid)(nil).Report("", 1, err) // reports nothing
}

// TestInvalidIsBounded verifies that a hostile writer fills neither the memory nor the log.
func TestInvalidIsBounded(t *testing.T) {
	var log bytes.Buffer
	i := NewInvalid(nil, slog.New(slog.NewTextHandler(&log, nil)))
	for n := range uint64(10 * maxNamed) {
		i.Report("", n, errors.New("invalid"+strings.Repeat("é", maxError)))
	}
	if got := counted(t, i, event.InvalidEvent); got != 10*maxNamed {
		t.Errorf("counted %v", got)
	}
	if got := log.Len(); got > 2*maxError*maxNamed {
		t.Errorf("%d bytes of log", got)
	}
	if got := strings.Count(log.String(), "\n"); got != maxNamed+1 || len(i.named) != maxNamed+1 {
		t.Errorf("%d lines and %d remembered", got, len(i.named))
	}
}

package relay

import (
	"log/slog"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/status"
)

// risks returns the settings with which the bus can lose what it has acknowledged.
func (t *term) risks() []publish.Risk {
	if t == nil || t.bus.risks == nil {
		return nil
	}
	return t.bus.risks()
}

// riskStatus returns the risks for the document.
func (t *term) riskStatus() (all []status.Risk) {
	for _, r := range t.risks() {
		all = append(all, status.Risk{Setting: r.Setting, Of: r.Of, Message: r.String(), Fix: r.Fix})
	}
	return all
}

// noteRisks logs each setting once. A bus that is one server by choice gets no warning.
func noteRisks(log *slog.Logger, logged map[string]bool, now []publish.Risk) {
	for _, r := range now {
		if logged[r.Setting] {
			continue
		}
		logged[r.Setting] = true
		attributes := []any{"setting", r.Setting, "of", r.Of, "loses", r.Loses, "fix", r.Fix}
		if r.Single {
			log.Info("the bus is one server", attributes...)
			continue
		}
		log.Warn("the bus can lose events that it acknowledged", attributes...)
	}
}

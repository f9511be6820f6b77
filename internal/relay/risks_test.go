package relay

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// TestNoteRisks verifies that the log reports each setting once, and that a single server causes no
// warning.
func TestNoteRisks(t *testing.T) {
	var log bytes.Buffer
	logger, logged := slog.New(slog.NewTextHandler(&log, nil)), map[string]bool{}
	unclean := publish.Risk{Setting: "unclean.leader.election.enable=true", Of: []string{"a"}, Loses: "records", Fix: "set it to false"}
	single := publish.Risk{Setting: "num_replicas=1", Of: []string{"KUBERELAY"}, Loses: "events", Fix: "use three", Single: true}
	noteRisks(logger, logged, nil)
	noteRisks(logger, logged, []publish.Risk{unclean})
	unclean.Of = []string{"a", "b"}
	noteRisks(logger, logged, []publish.Risk{unclean, single})
	noteRisks(logger, logged, []publish.Risk{single})
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "set it to false") || !strings.Contains(lines[1], "level=INFO") {
		t.Errorf("the log has\n%s", &log)
	}
}

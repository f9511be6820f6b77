package relay

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/informers/health"
	"github.com/kuberelay/kuberelay/internal/status"
)

// TestNoteUnmatched verifies that the log reports once that an entry matches nothing, and once that
// it matches again.
func TestNoteUnmatched(t *testing.T) {
	typo := status.Unmatched{Setting: "KUBERELAY_RESOURCES", Entry: "deploymnts", Suggestion: "deployments.apps"}
	vague := typo
	vague.Suggestion = "" // nothing similar is served yet
	vaults := status.Unmatched{Setting: "KUBERELAY_HASH_FIELDS", Entry: "vaults:.spec"}
	for name, c := range map[string]struct {
		before, now []status.Unmatched
		want        string
	}{
		"at the start": {nil, []status.Unmatched{typo, vaults}, `level=WARN msg="setting matches nothing" setting=KUBERELAY_RESOURCES entry=deploymnts similar=deployments.apps
level=WARN msg="setting matches nothing" setting=KUBERELAY_HASH_FIELDS entry=vaults:.spec similar=none
`},
		"no change":       {[]status.Unmatched{typo}, []status.Unmatched{typo}, ""},
		"matches now":     {[]status.Unmatched{typo, vaults}, []status.Unmatched{vaults}, "level=INFO msg=\"setting now matches\" setting=KUBERELAY_RESOURCES entry=deploymnts\n"},
		"a similar one":   {[]status.Unmatched{vague}, []status.Unmatched{typo}, "level=WARN msg=\"setting matches nothing\" setting=KUBERELAY_RESOURCES entry=deploymnts similar=deployments.apps\n"},
		"everything does": {nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			noteUnmatched(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}})), c.before, c.now)
			if got := log.String(); got != c.want {
				t.Errorf("the log has\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestWithoutMatchesNotReady verifies that the check fails before the informers run, because
// nothing matches yet.
func TestWithoutMatchesNotReady(t *testing.T) {
	var s readiness
	if err := s.matches(); err == nil || !strings.Contains(err.Error(), "starting") {
		t.Errorf("got %v", err)
	}
}

// TestSelectsNothing verifies that a watch that fails does not end the warning about selectors that select
// nothing. In an earlier version, the log then said that the setting matches.
func TestSelectsNothing(t *testing.T) {
	empty := health.Status{State: health.Synced, Synced: true}
	for name, c := range map[string]struct {
		all  health.Report
		want bool
	}{
		"no resource":           {nil, false},
		"no object":             {health.Report{empty, empty}, true},
		"an object":             {health.Report{empty, {State: health.Synced, Synced: true, Objects: 1}}, false},
		"listing":               {health.Report{empty, {State: health.Starting}}, false},
		"the list fails":        {health.Report{empty, {State: health.Degraded}}, false},
		"the watch fails":       {health.Report{empty, {State: health.Degraded, Synced: true}}, true},
		"it had objects before": {health.Report{empty, {State: health.Degraded, Synced: true, Objects: 1}}, false},
	} {
		if got := selectsNothing(c.all); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}

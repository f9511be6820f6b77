package relay

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// TestMayStandAgain: a leader whose bus is gone stands for election again, unless two
// forwarders would end each other's terms forever.
func TestMayStandAgain(t *testing.T) {
	r := &Relay{Config: Config{Settings: config.Config{Leader: config.Leader{LeaseDuration: 15 * time.Second}}}}
	gone := fmt.Errorf("another forwarder has taken over: %w", publish.ErrGone)
	for name, c := range map[string]struct {
		err  error
		term time.Duration
		want bool
	}{
		"another has taken over":            {gone, time.Minute, true},
		"another does so all the time":      {gone, time.Second, false},
		"the name is another cluster's":     {&takenError{&ConfigError{errors.New("taken")}}, time.Minute, false},
		"it has nothing to do with the bus": {errors.New("no"), time.Minute, false},
	} {
		if got := r.mayRejoinElection(c.err, c.term); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

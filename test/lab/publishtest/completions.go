package publishtest

import (
	"sync"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// limit bounds every wait. Only a failing test reaches it.
const limit = 3 * time.Minute

// completion is the result that a publisher reported for one message.
type completion struct {
	m        *event.Message
	position uint64
	err      error
}

// completions collects the calls to the done functions. It fails the test if the done function of a
// message is called twice.
type completions struct {
	t  *testing.T
	ch chan completion

	mu     sync.Mutex
	called map[*event.Message]int
}

func newCompletions(t *testing.T) *completions {
	return &completions{t: t, ch: make(chan completion, 100_000), called: map[*event.Message]int{}}
}

func (c *completions) of(m *event.Message) func(uint64, error) {
	return func(position uint64, err error) {
		c.mu.Lock()
		c.called[m]++
		n := c.called[m]
		c.mu.Unlock()
		if n > 1 {
			c.t.Errorf("done called %d times for %s", n, m.ID)
		}
		c.ch <- completion{m, position, err}
	}
}

// wait returns the next n completions.
func (c *completions) wait(n int) []completion {
	c.t.Helper()
	timeout := time.After(limit)
	var got []completion
	for len(got) < n {
		select {
		case r := <-c.ch:
			got = append(got, r)
		case <-timeout:
			c.t.Fatalf("%d of %d completions were called within %s", len(got), n, limit)
		}
	}
	return got
}

// none fails the test if it finds another completion.
func (c *completions) none() {
	c.t.Helper()
	select {
	case r := <-c.ch:
		c.t.Errorf("done called again for %s", r.m.ID)
	default:
	}
}

package stdout

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

func TestContract(t *testing.T) {
	publishtest.Run(t, func(*testing.T) publishtest.Bus {
		var out bytes.Buffer
		return publishtest.Bus{
			Open: func(*testing.T, bool) publish.Publisher { return New(&out) },
			Read: func(t *testing.T, k event.Key) []publishtest.Event { return read(t, out.String(), k) },
		}
	})
}

// read parses the lines into the events of k, and fails the test at a line that is not an event.
func read(t *testing.T, text string, k event.Key) []publishtest.Event {
	t.Helper()
	var events []publishtest.Event
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := uint64(1); lines.Scan(); n++ {
		m, err := event.ParseStructured(lines.Bytes())
		if err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		if m.Attribute("partitionkey") == event.PartitionKey(publishtest.Cluster, k) {
			events = append(events, publishtest.Event{ID: m.ID, Position: n, Data: string(m.Data)})
		}
	}
	return events
}

// TestLines verifies that every line is one whole event, even with many concurrent publishers.
func TestLines(t *testing.T) {
	var out chopped
	p := New(&out)
	const publishers, each = 8, 100
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			for j := range each {
				m := publishtest.Object{Name: fmt.Sprintf("web-%d", i), Version: j + 1, Data: "two\nlines"}.Message(t, 0)
				p.Publish(t.Context(), m, func(_ uint64, err error) {
					if err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
	wg.Wait()
	for i := range publishers {
		if got := len(read(t, out.String(), publishtest.Object{Name: fmt.Sprintf("web-%d", i)}.Key())); got != each {
			t.Errorf("%d events of publisher %d, want %d", got, i, each)
		}
	}
}

// chopped writes in two parts, so that concurrent calls of Write would mix lines.
type chopped struct{ bytes.Buffer }

func (c *chopped) Write(p []byte) (int, error) {
	c.Buffer.Write(p[:len(p)/2])
	c.Buffer.Write(p[len(p)/2:])
	return len(p), nil
}

// TestWriteFails verifies that a failed write is reported and does not break any other line.
func TestWriteFails(t *testing.T) {
	broken := errors.New("broken pipe")
	out := &failing{err: broken}
	p := New(out)
	message := func(v int) *event.Message { return publishtest.Object{Name: "web", Version: v}.Message(t, 0) }
	var got []string
	publish := func(v int, limit int) {
		out.limit = limit
		p.Publish(t.Context(), message(v), func(position uint64, err error) {
			if err != nil && !errors.Is(err, broken) {
				t.Errorf("error is %v", err)
			}
			got = append(got, fmt.Sprint(position, err != nil, p.Ready() != nil))
		})
	}
	publish(1, -1)
	publish(2, 0)  // writes nothing
	publish(3, 10) // writes a part of the line
	publish(3, 0)
	publish(3, 1) // writes only the newline that ends the incomplete line
	publish(3, -1)
	publish(4, -1)
	want := []string{"1 false false", "0 true true", "0 true true", "0 true true", "0 true true", "2 false false", "3 false false"}
	if strings.Join(got, ",") != strings.Join(want, ",") {
		t.Errorf("position, failed, unready: got %v, want %v", got, want)
	}
	if strings.Contains(out.String(), "\n\n") {
		t.Errorf("there is an empty line:\n%s", out.String())
	}
	var ids []string
	for line := range strings.Lines(out.String()) {
		if m, err := event.ParseStructured([]byte(line)); err == nil {
			ids = append(ids, m.ID)
		}
	}
	if want := "uid-of-web.1 uid-of-web.3 uid-of-web.4"; strings.Join(ids, " ") != want {
		t.Errorf("whole lines are of %v, want %s", ids, want)
	}
}

// failing writes limit bytes and then fails. If limit is negative, it writes everything.
type failing struct {
	bytes.Buffer
	limit int
	err   error
}

func (f *failing) Write(p []byte) (int, error) {
	if f.limit < 0 {
		return f.Buffer.Write(p)
	}
	n, _ := f.Buffer.Write(p[:f.limit])
	return n, f.err
}

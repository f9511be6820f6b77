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
		var text bytes.Buffer
		out := NewOutput(&text)
		return publishtest.Bus{
			Open: func(*testing.T, bool) publish.Publisher { return New(out) },
			Read: func(t *testing.T, k event.Key) []publishtest.Event { return read(t, text.String(), k) },
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
	shared := NewOutput(&out)
	const publishers, each = 8, 100
	var wg sync.WaitGroup
	for i := range publishers {
		p := New(shared)
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
	p := New(NewOutput(out))
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

// TestWriteOfAnotherPublisherFails verifies that an incomplete line of one publisher does not break
// the line of another. In an earlier version, a forwarder of several clusters lost such an event: it
// counted as acknowledged, in the middle of a line.
func TestWriteOfAnotherPublisherFails(t *testing.T) {
	file := &failing{err: errors.New("no space")}
	out := NewOutput(file)
	a, b := New(out), New(out)
	publish := func(p *Publisher, name string) (failed error) {
		p.Publish(t.Context(), publishtest.Object{Name: name, Version: 1}.Message(t, 0), func(_ uint64, err error) { failed = err })
		return failed
	}
	file.limit = 10
	if err := publish(a, "a"); !errors.Is(err, file.err) {
		t.Fatalf("got %v, want %v", err, file.err)
	}
	file.limit = -1
	if err := publish(b, "b"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(file.String(), "\n")
	if len(lines) != 3 || lines[2] != "" {
		t.Fatalf("got the lines %q", lines)
	}
	if m, err := event.ParseStructured([]byte(lines[1])); err != nil || m.ID != "uid-of-b.1" {
		t.Errorf("got %q and %v", lines[1], err)
	}
	if a.Ready() == nil || b.Ready() != nil {
		t.Errorf("ready: got %v and %v", a.Ready(), b.Ready())
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

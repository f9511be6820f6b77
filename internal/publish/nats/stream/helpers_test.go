package stream

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// limit bounds every wait. Only a failing test waits that long.
const limit = 3 * time.Minute

// connect returns a connection that creates the stream if it does not exist. The stream has one
// replica for each URL.
func connect(t testing.TB, urls ...string) *Conn {
	t.Helper()
	check := func(ctx context.Context, c *Conn) error {
		info, err := c.FindStream(ctx)
		if errors.Is(err, ErrMissing) {
			_, err = c.JS.CreateStream(ctx, jetstream.StreamConfig{Name: c.Opts.Stream, Subjects: []string{c.Opts.Subjects()}, MaxMsgsPerSubject: 8, Replicas: len(urls)})
			return err
		}
		if err == nil {
			c.Found(info)
		}
		return err
	}
	c, err := Connect(t.Context(), Options{URLs: urls}, Hooks{Check: check})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// fill publishes messages to each of several subjects and returns the last position of each subject.
func fill(t testing.TB, c *Conn, subjects, messages int) map[string]uint64 {
	t.Helper()
	last := map[string]uint64{}
	for i := range subjects {
		for range messages {
			subject := fmt.Sprintf("kuberelay.web-%d", i)
			ack, err := c.JS.Publish(t.Context(), subject, []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			last[subject] = ack.Sequence
		}
	}
	return last
}

// loader returns a load that records the position of each subject, or 0 for a purged subject.
func loader(c *Conn) (l *loading, got map[string]uint64) {
	got = map[string]uint64{}
	l = &loading{c: c, filter: "kuberelay.>", seen: map[string]bool{}}
	l.take = func(m *Message) error { got[m.Subject] = m.Sequence; return nil }
	l.purged = func(subject string) error { got[subject] = 0; return nil }
	return l, got
}

package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// TestModelOfNATS performs the same random operations on the model and on a real server, and
// compares every result. The server restarts after every 500 operations.
func TestModelOfNATS(t *testing.T) {
	for _, perSubject := range []int{1, 2, 8} {
		t.Run(fmt.Sprintf("%d messages per subject", perSubject), func(t *testing.T) {
			s := natstest.Start(t)
			c := &comparison{t: t, rng: rand.New(rand.NewPCG(uint64(perSubject), 1)), model: bus{perSubject: perSubject}}
			c.connect(s.URL)
			for n := range 1500 {
				c.one(n)
				if n%500 == 499 {
					s.Restart()
					c.connect(s.URL)
				}
			}
		})
	}
}

// comparison is a stream and its model.
type comparison struct {
	t      *testing.T
	rng    *rand.Rand
	model  bus
	js     jetstream.JetStream
	stream jetstream.Stream
}

func (c *comparison) connect(url string) {
	c.t.Helper()
	nc, err := natsgo.Connect(url, natsgo.Timeout(time.Minute))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	if c.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute)); err != nil {
		c.t.Fatal(err)
	}
	c.stream, err = c.js.CreateOrUpdateStream(c.t.Context(), jetstream.StreamConfig{
		Name: "TEST", Subjects: []string{"of.*"}, MaxMsgsPerSubject: int64(c.model.perSubject), Discard: jetstream.DiscardNew, MaxBytes: -1, MaxMsgs: -1,
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// one performs one random operation on the server and on the model.
func (c *comparison) one(n int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	subject := []string{"of.a", "of.b", "of.c"}[c.rng.IntN(3)]
	switch c.rng.IntN(6) {
	case 0, 1, 2:
		expected := c.sequence(subject)
		ack, err := c.js.PublishMsg(ctx, &natsgo.Msg{Subject: subject, Data: fmt.Append(nil, n)}, jetstream.WithExpectLastSequencePerSubject(expected))
		is := ""
		var refused *jetstream.APIError
		switch {
		case err == nil:
			is = fmt.Sprint(ack.Sequence)
		case errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
			is = "refused"
		default:
			c.t.Fatal(err)
		}
		want := "refused"
		if sequence, ok := c.model.publish(subject, nil, fmt.Append(nil, n), expected, time.Now()); ok {
			want = fmt.Sprint(sequence)
		}
		c.same(n, fmt.Sprintf("publish %s after %d", subject, expected), is, want)
	case 3:
		m, err := c.stream.GetLastMsgForSubject(ctx, subject)
		want := "none"
		if last := c.model.lastOf(subject); last != nil {
			want = fmt.Sprintf("%s %d %s", last.Subject, last.Sequence, last.Data)
		}
		c.same(n, "the last of "+subject, c.describe(m, err), want)
	case 4:
		sequence := 1 + c.rng.Uint64N(c.model.last+2)
		m, err := c.stream.GetMsg(ctx, sequence)
		want := "none"
		if at := c.model.at(sequence); at != nil {
			want = fmt.Sprintf("%s %d %s", at.Subject, at.Sequence, at.Data)
		}
		c.same(n, fmt.Sprintf("message %d", sequence), c.describe(m, err), want)
	case 5:
		if c.rng.IntN(4) > 0 {
			return
		}
		before := c.sequence(subject) + c.rng.Uint64N(3)
		if before == 0 {
			return // a purge up to sequence 0 removes everything
		}
		if err := c.stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(before)); err != nil {
			c.t.Fatal(err)
		}
		c.model.purge(subject, before)
	}
}

// sequence returns the last sequence of a subject, or a random one.
func (c *comparison) sequence(subject string) uint64 {
	if last := c.model.lastOf(subject); last != nil && c.rng.IntN(4) > 0 {
		return last.Sequence
	}
	return c.rng.Uint64N(c.model.last+2) * uint64(c.rng.IntN(2))
}

func (c *comparison) describe(m *jetstream.RawStreamMsg, err error) string {
	c.t.Helper()
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return "none"
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return fmt.Sprintf("%s %d %s", m.Subject, m.Sequence, m.Data)
}

func (c *comparison) same(n int, what, server, model string) {
	c.t.Helper()
	if server != model {
		c.t.Fatalf("operation %d: %s: the server answers %q, the model %q", n, what, server, model)
	}
}

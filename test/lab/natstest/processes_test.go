//go:build unix

package natstest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

func TestMain(m *testing.M) {
	natstest.RunIfChild()
	os.Exit(m.Run())
}

const limit = time.Minute

// TestProcesses verifies the faults of a cluster. A stream with three replicas stays writable without
// its leader. It isn't writable while all servers are cut off from each other. A replica that is held
// back lacks messages that the leader has.
func TestProcesses(t *testing.T) {
	c := natstest.StartProcesses(t, 3)
	nc, err := nats.Connect(strings.Join(c.URLs(), ","), nats.Timeout(limit), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.PingInterval(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	eventually := func(what string, is func(context.Context) error) {
		t.Helper()
		if err := poll.Until(t.Context(), limit, what, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return is(ctx)
		}); err != nil {
			t.Fatal(err)
		}
	}
	written := uint64(0)
	write := func(ctx context.Context) error {
		ack, err := js.Publish(ctx, "one", nil)
		if err == nil {
			written = ack.Sequence
		}
		return err
	}
	leader := 0
	lead := func(ctx context.Context) (err error) {
		leader, err = c.Leader(ctx, js, "S")
		return err
	}
	eventually("the stream is created", func(ctx context.Context) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"one"}, Replicas: 3})
		return err
	})
	eventually("a leader", lead)
	eventually("a write", write)

	was := leader
	c.Servers[was].Kill()
	eventually("another leader", func(ctx context.Context) error {
		if err := lead(ctx); err != nil || leader == was {
			return errors.Join(err, errors.New("it still leads"))
		}
		return nil
	})
	eventually("a write without the former leader", write)
	c.Servers[was].Start()

	for i := range c.Servers {
		c.CutOff(i, i == 0)
	}
	eventually("no leader", func(ctx context.Context) error {
		if err := lead(ctx); err == nil {
			return fmt.Errorf("server %d leads", leader)
		}
		return nil
	})
	if err := write(t.Context()); err == nil {
		t.Error("a write succeeded while no server reached another one")
	}
	c.Join()
	eventually("a leader again", lead)
	eventually("a write to the joined cluster", write)

	eventually("the leader steps down", func(ctx context.Context) error { return natstest.StepDown(ctx, nc, "S") })
	eventually("a leader after that", lead)
	for i, p := range c.Servers {
		if err := p.HoldBack("S"); (err != nil) != (i == leader) {
			t.Errorf("server %d of leader %d is held back: %v", i, leader, err)
		}
	}
	eventually("a write that is not applied", write)
	for i, p := range c.Servers {
		if stored := p.Stored("S"); (stored < written) == (i == leader) {
			t.Errorf("server %d of leader %d has stored up to %d, the last message is %d", i, leader, stored, written)
		}
	}
}

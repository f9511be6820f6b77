package stream

import (
	"errors"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// hangLimit is the time within which Ready must report a bus that hangs.
const hangLimit = 10 * time.Second

// TestTheBoundsOfAHang verifies that the configured times add up to at most hangLimit. An earlier
// version used the client's defaults, which ping the server every 10 s and disconnect after the
// third ping.
func TestTheBoundsOfAHang(t *testing.T) {
	c := connect(t, natstest.Start(t).URL)
	if o := c.NC.Opts; o.PingInterval*time.Duration(o.MaxPingsOut+1) > hangLimit {
		t.Errorf("a connection is given up after %d pings, one every %s", o.MaxPingsOut+1, o.PingInterval)
	}
	if looked := checkEvery + retryEvery + checkTimeout; looked > hangLimit { // the ticker fires every retryEvery
		t.Errorf("a server that does not respond is noticed after %s", looked)
	}
}

// TestLateLook verifies that the result of a check over a lost connection does not apply to the next
// connection.
func TestLateLook(t *testing.T) {
	var s state
	s.current.Store(&phase{over: make(chan struct{})})
	s.set(0, nil)
	s.disconnected(errors.New("broken"))
	s.set(0, nil)
	if _, _, err := s.State(); err == nil {
		t.Error("ready after a check over the former connection")
	}
	s.set(1, nil)
	if _, _, err := s.State(); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

// TestAStreamWithoutALeader verifies that every read rejects a stream without a leader. Any replica
// describes such a stream from its own data, which may lack acknowledged messages.
func TestAStreamWithoutALeader(t *testing.T) {
	cluster := natstest.StartCluster(t, 3)
	c := connect(t, cluster.URLs...)
	l, _ := loader(c)
	cluster.Stop(1)
	cluster.Stop(2)
	poll.Holds(t, "Ready reports that the stream has no leader", func() bool { return errors.Is(c.Ready(), ErrNoLeader) })
	for name, read := range map[string]func() error{
		"the start of a load": func() error { _, err := c.FindStream(t.Context()); return err },
		"the end of a load":   func() error { return l.readMissing(t.Context()) },
	} {
		if err := read(); !errors.Is(err, ErrNoLeader) {
			t.Errorf("%s returns %v, want %v", name, err, ErrNoLeader)
		}
	}
}

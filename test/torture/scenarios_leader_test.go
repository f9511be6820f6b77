package torture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// electing runs two forwarders with leader election.
func electing(s settings) settings {
	s.replicas = 2
	return s
}

// purging makes the forwarders purge deletes soon.
func purging(s settings) settings {
	s.retention = time.Second
	return s
}

// patient makes a leader give up late, after it has reconnected to the bus.
var patient = map[string]string{"LEASE_DURATION": "7s", "LEASE_RENEW_DEADLINE": "5s"}

const leads = "lease acquired, leading"

// leaderAndStandby starts forwarder 0, which leads, and forwarder 1, which is the standby.
func (s *script) leaderAndStandby() {
	s.do(act{do: start, node: 0})
	s.logged(0, 1, leads)
	s.idle(0)
	s.do(act{do: start, node: 1})
	s.logged(1, 1, synced)
	s.logged(1, 1, "standing by")
}

// playLeaderless kills the leader and changes objects before the other one leads.
func playLeaderless(s *script) {
	s.create("changed", "deleted", "recreated", "same")
	s.leaderAndStandby()
	s.kill(0)
	s.change(put, at("changed"))
	s.change(remove, at("deleted"))
	s.change(remove, at("recreated"))
	s.create("recreated", "created")
	s.logged(1, 1, leads)
	s.idle(1)
}

// playSleeper shows the leader an object that it can't publish, and freezes the leader until the
// other forwarder has published and purged the object. When the leader wakes up, it doesn't know of
// the delete. The bus has no event of the object that would make it refuse a publish.
func playSleeper(s *script) {
	ghost := at("ghost")
	s.create("same")
	s.leaderAndStandby()
	s.do(act{do: busRefuse})
	s.change(put, ghost)
	s.until("the leader knows the object", func(ctx context.Context) error {
		n, err := s.nodes[0].Metric(ctx, "kuberelay_dirty_objects")
		if err == nil && n == 0 {
			err = errors.New("nothing is dirty")
		}
		return err
	})
	s.do(act{do: freeze})
	s.do(act{do: apiHold})
	s.logged(1, 1, leads)
	s.onBus(ghost, 1)
	s.change(remove, ghost)
	s.onBus(ghost, 2)
	s.logged(1, 1, emptied)
	s.do(act{do: busPass})
	s.do(act{do: thaw})
	s.until("the sleeper has its bus again, or has given up", func(ctx context.Context) error {
		if strings.Contains(s.nodes[0].Log(), "stopped leading") {
			return nil
		}
		n, err := s.nodes[0].Metric(ctx, `kuberelay_nats_connected`)
		if err == nil && n == 0 {
			err = errors.New("the bus is unavailable")
		}
		return err
	})
	s.logged(0, 1, "stopped leading")
	s.do(act{do: apiPass})
	s.until("the former leader stands by", func(ctx context.Context) error {
		_, body, err := s.nodes[0].Get(ctx, "/readyz")
		if err == nil && !strings.Contains(body, "standing by") {
			err = fmt.Errorf("it says %q", body)
		}
		return err
	})
	s.idle(1)
}

// playStandby changes objects while one forwarder leads and one is the standby.
func playStandby(s *script) {
	s.do(act{do: start, node: 0})
	s.idle(0)
	s.do(act{do: start, node: 1})
	s.logged(1, 1, synced)
	s.create("one", "two")
	s.onBus(at("two"), 1)
	s.change(put, at("one"))
	s.onBus(at("one"), 2)
	s.until("the standby is ready", s.nodes[1].Ready)
}

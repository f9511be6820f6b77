package torture

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// clustered are the scenarios whose bus is a cluster of servers.
var clustered = []scenario{
	{
		name: "each server of a NATS cluster is down for a while, after its replicas lagged", bugs: []string{"trust-replica", "one-replica", "one-server"},
		settings: inCluster3(losing(usual)), play: playServersGo,
	},
	{
		name:     "two servers of a NATS cluster lose the end of the stream, and the third one keeps it",
		settings: inCluster3(losing(usual)), play: playReplicasDiffer,
	},
	{
		name:     "the servers of a NATS cluster are upgraded one by one",
		settings: upgradedLater(inCluster3(usual)), play: playUpgrade(rolling),
	},
}

// inCluster3 gives the bus three servers.
func inCluster3(s settings) settings {
	s.cluster = 3
	return s
}

// upgradedLater makes the servers of the bus start with the former release.
func upgradedLater(s settings) settings {
	s.former = true
	return s
}

// playUpgrade upgrades the servers of the bus one by one while an object changes. Each change follows
// once the bus has the change before. The forwarder must publish further changes after the restart of
// each server. Then it restarts and reads the checkpoint.
func playUpgrade(roll verb) func(*script) {
	return func(s *script) {
		s.create("changed", "deleted", "same")
		s.begin(0)
		s.step(func() error {
			ctx, cancel := context.WithCancel(s.t.Context())
			var changing sync.WaitGroup
			var failed error
			changing.Go(func() { failed = s.changeUntil(ctx, at("changed")) })
			var err error
			for n := 0; n < s.settings.cluster && err == nil; n++ {
				err = errors.Join(s.execute(s.t.Context(), act{do: roll, arg: upgraded, n: n + 1}), s.awaitMore(at("changed")))
			}
			cancel()
			changing.Wait()
			return errors.Join(err, failed)
		})
		s.change(remove, at("deleted"))
		s.idle(0)
		s.kill(0)
		s.change(put, at("new"))
		s.begin(0)
	}
}

// awaitMore waits until the bus has two more events of an object.
func (s *script) awaitMore(t target) error {
	has, err := s.events(t)
	if err != nil {
		return err
	}
	return poll.Until(s.t.Context(), limit, "further changes are published", func(context.Context) error {
		is, err := s.events(t)
		if err == nil && is < has+2 {
			err = fmt.Errorf("the bus had %d events and has %d", has, is)
		}
		return err
	})
}

// changeUntil changes an object until ctx ends, each time after the bus has the change before.
func (s *script) changeUntil(ctx context.Context, t target) error {
	has, err := s.events(t)
	for value := 1001; err == nil && ctx.Err() == nil; value += 5 { // a multiple of 5 would remove the label
		has++
		if err = s.user.do(s.t.Context(), op{do: put, target: t, value: value}); err != nil {
			break
		}
		err = poll.Until(ctx, limit, "the change is published", func(context.Context) error {
			is, err := s.events(t)
			if err == nil && is < has {
				err = fmt.Errorf("the bus has %d events", is)
			}
			return err
		})
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// playServersGo makes the forwarder read its checkpoint while two replicas lag, which the forwarder
// must not take for a loss. Then the forwarder must publish while any one of the servers is down.
func playServersGo(s *script) {
	s.create("changed", "deleted", "same")
	s.begin(0)
	s.do(act{do: followersHold})
	s.change(put, at("changed"))
	s.change(remove, at("deleted"))
	s.create("new")
	s.onBus(at("new"), 1)
	s.reloads(8)
	s.do(act{do: clusterHeal})
	s.told(0)
	for n := range s.settings.cluster {
		name := fmt.Sprintf("without-%d", n)
		s.do(act{do: serverKill, n: n})
		s.create(name)
		s.published(name)
		s.do(act{do: clusterHeal})
		s.do(act{do: clusterAgree})
	}
	s.idle(0)
}

// playReplicasDiffer makes the forwarder read its checkpoint while one replica has the messages that
// the others lost, and lacks the messages that they stored since. The forwarder must report each loss
// only once.
func playReplicasDiffer(s *script) {
	s.create("changed", "same")
	s.begin(0)
	s.do(act{do: copyDisks})
	s.change(put, at("changed"))
	s.create("new")
	s.onBus(at("new"), 1)
	s.idle(0)
	s.do(act{do: clusterAgree})
	s.do(act{do: majorityBack, arg: outrun})
	var told float64
	s.step(func() (err error) { told, err = s.nodes[0].Metric(s.t.Context(), lostTotal); return err })
	s.create("newer")
	s.published("newer")
	s.reloads(8)
	s.told(told)
	s.do(act{do: aheadEmpty})
	s.idle(0)
	s.do(act{do: clusterAgree})
}

// reloads waits until the forwarder has read its checkpoint this many more times. A forwarder with the
// bug trust-replica reads from a random replica each time.
func (s *script) reloads(times float64) {
	const reads = "kuberelay_nats_reads_total"
	var before float64
	s.step(func() (err error) { before, err = s.nodes[0].Metric(s.t.Context(), reads); return err })
	s.until("the checkpoint is read", func(ctx context.Context) error {
		now, err := s.nodes[0].Metric(ctx, reads)
		if err == nil && now < before+times {
			err = fmt.Errorf("%v reads", now-before)
		}
		return err
	})
}

// told checks the number of objects that the forwarder has reported as lost by the bus.
func (s *script) told(want float64) {
	s.step(func() error {
		got, err := s.nodes[0].Metric(s.t.Context(), lostTotal)
		if err == nil && got != want {
			err = &wrongError{[]string{fmt.Sprintf("the forwarder reported %v objects as lost by the bus, want %v", got, want)}}
		}
		return err
	})
}

// published checks that the bus receives the first event of an object.
func (s *script) published(name string) {
	s.step(func() error {
		wait := limit
		if s.planted() {
			wait = buggyReady
		}
		err := poll.Until(s.t.Context(), wait, "the event of "+name+" is on the bus", func(context.Context) error {
			n, err := s.events(at(name))
			if err == nil && n == 0 {
				err = errors.New("it is not")
			}
			return err
		})
		if err != nil {
			return &wrongError{[]string{err.Error()}}
		}
		return nil
	})
}

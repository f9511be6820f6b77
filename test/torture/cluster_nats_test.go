package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	verifyreport "github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// executeOnCluster performs an action on the servers of a cluster.
func (b *natsBus) executeOnCluster(ctx context.Context, a act) error {
	leader := b.leader(ctx)
	follower := (leader + 1) % len(b.servers)
	switch a.do {
	case leaderKill:
		b.killServer(leader)
	case leaderFreeze:
		b.freezeServer(leader)
		b.reading[leader].Refuse()
	case followerFreeze:
		b.freezeServer(follower)
		b.reading[follower].Refuse()
	case leaderCut:
		b.cutOff(leader, a.arg)
	case followerCut:
		b.cutOff(follower, a.arg)
	case allCut:
		for n := range b.servers {
			b.cluster.CutOff(n, a.arg == silently)
		}
	case followersHold:
		for n, s := range b.servers {
			if n != leader && s.HoldBack(streamName) == nil { // after an error, the server leads by now
				b.held[n] = true
			}
		}
	case followerLeads:
		_ = b.thaw()
		b.reading.Pass()
		b.killServer(leader)
	case majorityKill:
		b.killServer(follower)
		b.killServer((follower + 1) % len(b.servers))
	case rolling:
		return b.roll(ctx, a.arg, a.n)
	case stepDowns:
		return b.stepDown(ctx, a.n)
	case leaderAwait:
		b.awaitLeader(ctx)
	case clusterHeal:
		b.heal()
	case serverKill:
		b.killServer(a.n)
	case clusterAgree:
		_, err := b.agreed(ctx, false)
		return err
	case copyDisks:
		return b.copyDisks(ctx, leader, follower)
	case diskBack:
		return b.putDiskBack(ctx, follower, a.arg == string(leaderKill))
	case majorityBack:
		return b.putDisksBack(ctx, a.arg)
	case aheadEmpty:
		return b.emptyAhead(ctx)
	default:
		return fmt.Errorf("unknown action %q", a.do)
	}
	return nil
}

// leader returns the server that leads the stream, or server 0 if none does.
func (b *natsBus) leader(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	n, err := b.cluster.Leader(ctx, b.JetStream(), streamName)
	if err != nil {
		return 0
	}
	return n
}

// awaitLeader waits up to electionLimit for a leader that is running, not frozen and not cut off.
func (b *natsBus) awaitLeader(ctx context.Context) {
	_ = poll.Until(ctx, electionLimit, "a server leads", b.led)
}

// led returns nil if the recorder reaches a server that leads.
func (b *natsBus) led(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	n, err := b.cluster.Leader(ctx, b.JetStream(), streamName)
	if err == nil && (b.down[n] || b.frozen[n]) {
		err = fmt.Errorf("the leader is server %d, which is down", n)
	}
	return err
}

func (b *natsBus) killServer(n int) {
	b.servers[n].Kill()
	b.down[n] = true
	delete(b.frozen, n)
}

func (b *natsBus) startServer(n int) {
	if b.down[n] {
		b.servers[n].Start()
		delete(b.down, n)
	}
}

// cutOff cuts a server off from the other servers. It also cuts the server off from the recorder, because the
// recorder couldn't read the stream from that server.
func (b *natsBus) cutOff(n int, how string) {
	b.cluster.CutOff(n, how == silently)
	b.reading[n].Refuse()
}

// heal ends the faults of all servers.
func (b *natsBus) heal() {
	_ = b.thaw()
	for n := range b.servers {
		b.startServer(n)
	}
	for n := range b.held {
		_ = b.servers[n].Release(streamName) // an error means that the server was restarted since
	}
	clear(b.held)
	b.cluster.Join()
	b.reading.Pass()
}

// agreed waits until the stream has the same end on every server and one of them leads. It returns
// that end. If ahead is true, servers that don't lead may have a later end.
func (b *natsBus) agreed(ctx context.Context, ahead bool) (end uint64, err error) {
	same, enough := 0, 10
	if ahead {
		enough = 200 // a server with a later end may still become the leader
	}
	err = poll.Until(ctx, limit, "the replicas agree", func(ctx context.Context) error {
		ends := make([]uint64, len(b.servers))
		for n, s := range b.servers {
			ends[n] = s.Stored(streamName)
		}
		now := ends[b.leader(ctx)]
		err := b.led(ctx)
		for _, at := range ends {
			if at < now || at > now && !ahead {
				err = errors.Join(err, fmt.Errorf("they end at %d", ends))
			}
		}
		if err != nil || now != end {
			end, same = now, 0
			return errors.Join(err, errors.New("they changed"))
		}
		if same++; same < enough {
			return errors.New("the replicas have not agreed for long enough")
		}
		return nil
	})
	return end, err
}

// roll restarts the servers one by one, each after the one before has caught up. If only isn't 0, it
// restarts only that server, counted from 1.
func (b *natsBus) roll(ctx context.Context, how string, only int) error {
	for n, s := range b.servers {
		if only > 0 && n != only-1 {
			continue
		}
		before := s.Version()
		if how == "" {
			b.killServer(n)
		} else {
			s.Stop()
			b.down[n] = true
		}
		if how == upgraded {
			s.Upgrade()
		}
		b.awaitLeader(ctx)
		b.startServer(n)
		if err := b.caughtUp(ctx, n); err != nil {
			return err
		}
		if (s.Version() != before) != (how == upgraded) {
			return fmt.Errorf("server %d had version %s and has %s", n, before, s.Version())
		}
	}
	return nil
}

// caughtUp waits until a server lacks at most catchUp messages of the others, and one of the servers
// leads.
func (b *natsBus) caughtUp(ctx context.Context, n int) error {
	return poll.Until(ctx, limit, "the server has caught up", func(ctx context.Context) error {
		has := b.servers[n].Stored(streamName)
		for _, other := range b.servers {
			if at := other.Stored(streamName); at > has+catchUp {
				return fmt.Errorf("it has %d of %d", has, at)
			}
		}
		return b.led(ctx)
	})
}

// catchUp is the number of messages that a server may lack under load.
const catchUp = 20

// stepDown makes the leader step down several times.
func (b *natsBus) stepDown(ctx context.Context, times int) error {
	for range times {
		b.awaitLeader(ctx)
		ctx, cancel := context.WithTimeout(ctx, opTimeout)
		_ = natstest.StepDown(ctx, b.JetStream().Conn(), streamName) // it fails while no server leads
		cancel()
	}
	b.awaitLeader(ctx)
	return nil
}

// isOfOneReplica reports whether verify found an object that doesn't exist because it read a message
// that the leader of the stream lacks. Later messages of the object must have been removed. With
// nats-server 2.15, such a message returns on a server that is killed: see
// TestAMessageReturnsOnOneServer_Slow in internal/publish/nats.
func (w *world) isOfOneReplica(ctx context.Context, p verifyreport.Problem, all []harness.Received) bool {
	b, ok := w.bus.(*natsBus)
	at := slices.IndexFunc(all, func(m harness.Received) bool { return m.Sequence == p.Position })
	if !ok || b.cluster == nil || p.Kind != verifyreport.Extra || at < 0 {
		return false
	}
	removed := slices.ContainsFunc(all[at+1:], func(m harness.Received) bool {
		return m.Subject == all[at].Subject && gone(m) && (w.lost[m.Place] || w.purges())
	})
	has, err := b.leaderHas(ctx, p.Position)
	w.t.Logf("verify read %s at %d, which the leader has: %t (%v); later ones were removed: %t", all[at].Subject, p.Position, has, err, removed)
	for n, s := range b.servers {
		w.t.Logf("server %d has %d messages up to %d", n, s.Messages(streamName), s.Stored(streamName))
	}
	return removed && err == nil && !has
}

// leaderHas reports whether the leader of the stream has the message at a position.
func (b *natsBus) leaderHas(ctx context.Context, position uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	m, err := b.JetStream().Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+streamName, fmt.Appendf(nil, `{"seq":%d}`, position))
	if err != nil {
		return false, err
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return false, err
	}
	if answer.Error != nil && answer.Error.ErrorCode != jetstream.JSErrCodeMessageNotFound {
		return false, answer.Error
	}
	return answer.Error == nil, nil
}

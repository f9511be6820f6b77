package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// executeOnCluster performs a deed on the servers of a cluster.
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
			if n != leader && s.HoldBack(streamName) == nil { // otherwise it leads by now
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
		return b.roll(ctx, a.arg == orderly)
	case stepDowns:
		return b.stepDown(ctx, a.n)
	case leaderAwait:
		b.awaitLeader(ctx)
	case clusterHeal:
		b.heal()
	case serverKill:
		b.killServer(a.n)
	case clusterAgree:
		_, err := b.agreed(ctx)
		return err
	case copyDisks:
		return b.copyDisks(ctx, leader, follower)
	case diskBack:
		return b.putDiskBack(ctx, follower, a.arg == string(leaderKill))
	case majorityBack:
		return b.putDisksBack(ctx, a.arg == emptied3)
	default:
		return fmt.Errorf("unknown deed %q", a.do)
	}
	return nil
}

// leader returns the server that leads the stream, or any if none does.
func (b *natsBus) leader(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	n, err := b.cluster.Leader(ctx, b.JetStream(), streamName)
	if err != nil {
		return 0
	}
	return n
}

// awaitLeader waits until a server leads that is running, not frozen and not cut off, but not
// forever.
func (b *natsBus) awaitLeader(ctx context.Context) {
	_ = harness.Eventually(ctx, electionLimit, "a server leads", b.led)
}

// led returns nil if the recorder reaches a server that leads.
func (b *natsBus) led(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	n, err := b.cluster.Leader(ctx, b.JetStream(), streamName)
	if err == nil && (b.down[n] || b.frozen[n]) {
		err = fmt.Errorf("server %d, which is gone, led", n)
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

// cutOff cuts a server off from the others, and from the recorder, which could not read from it.
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
		_ = b.servers[n].Release(streamName) // it was started again since
	}
	clear(b.held)
	b.cluster.Join()
	b.reading.Pass()
}

// agreed waits until every server has the same end of the stream, and one leads. It returns that
// end.
func (b *natsBus) agreed(ctx context.Context) (end uint64, err error) {
	same := 0
	err = harness.Eventually(ctx, limit, "the replicas agree", func(ctx context.Context) error {
		var ends []uint64
		for _, s := range b.servers {
			ends = append(ends, s.Stored(streamName))
		}
		if err := b.led(ctx); err != nil || len(slices.Compact(slices.Clone(ends))) > 1 || ends[0] != end {
			end, same = ends[0], 0
			return errors.Join(err, fmt.Errorf("they end at %d", ends))
		}
		if same++; same < 10 {
			return errors.New("they only just do")
		}
		return nil
	})
	return end, err
}

// roll restarts the servers one by one, each after the one before has caught up.
func (b *natsBus) roll(ctx context.Context, orderly bool) error {
	for n, s := range b.servers {
		if orderly {
			s.Stop()
			b.down[n] = true
		} else {
			b.killServer(n)
		}
		b.awaitLeader(ctx)
		b.startServer(n)
		err := harness.Eventually(ctx, limit, "the server has caught up", func(ctx context.Context) error {
			all := s.Stored(streamName)
			for _, other := range b.servers {
				if at := other.Stored(streamName); at > all+catchUp {
					return fmt.Errorf("it has %d of %d", all, at)
				}
			}
			return b.led(ctx)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// catchUp is the number of messages that a server may lack under load.
const catchUp = 20

// stepDown makes the leader step down several times.
func (b *natsBus) stepDown(ctx context.Context, times int) error {
	for range times {
		b.awaitLeader(ctx)
		ctx, cancel := context.WithTimeout(ctx, opTimeout)
		_ = natstest.StepDown(ctx, b.JetStream().Conn(), streamName) // there may be no leader
		cancel()
	}
	b.awaitLeader(ctx)
	return nil
}

// copyDisks copies the stores of servers, one after the other.
func (b *natsBus) copyDisks(ctx context.Context, servers ...int) error {
	if has, err := b.world.awaitStored(ctx, "there is something to copy"); !has {
		return err
	}
	for _, n := range servers {
		b.killServer(n)
		b.copied[n] = filepath.Join(b.world.dir, fmt.Sprintf("store-%d-%d", n, time.Now().UnixNano()))
		if err := os.CopyFS(b.copied[n], os.DirFS(b.servers[n].StoreDir())); err != nil {
			return err
		}
		b.startServer(n)
		if _, err := b.world.awaitStored(ctx, "the stream is there again"); err != nil {
			return err
		}
	}
	return nil
}

// putDiskBack puts the store of a server back to its copy. The others have everything, also if the
// one that leads is killed before the server has caught up.
func (b *natsBus) putDiskBack(ctx context.Context, n int, killLeader bool) error {
	if b.copied[n] == "" {
		for n = range b.copied {
			break
		}
	}
	if len(b.copied) == 0 {
		return nil // the bus was empty
	}
	leader := b.leader(ctx)
	b.killServer(n)
	if err := b.replaceDisk(n); err != nil {
		return err
	}
	if killLeader && leader != n {
		b.killServer(leader)
	}
	b.startServer(n)
	return nil
}

// replaceDisk replaces the store of a killed server by its copy.
func (b *natsBus) replaceDisk(n int) error {
	b.servers[n].Forget()
	return os.CopyFS(b.servers[n].StoreDir(), os.DirFS(b.copied[n]))
}

// putDisksBack puts the stores of a majority back to their copies, so that the cluster loses what
// it acknowledged since, unless the third server, which has it, leads. The forwarders are frozen
// until it is known what was lost. Then one of them must report it.
func (b *natsBus) putDisksBack(ctx context.Context, emptyThird bool) error {
	w := b.world
	if has, err := w.awaitStored(ctx, "there is something to lose"); !has || len(b.copied) == 0 {
		return err
	}
	known, _, err := b.All()
	if err != nil {
		return err
	}
	told := w.losses(ctx)
	for _, n := range w.nodes {
		n.Signal(syscall.SIGSTOP)
	}
	wake := func() {
		for _, n := range w.nodes {
			n.Signal(syscall.SIGCONT)
		}
	}
	end, err := b.loseEnd(ctx, emptyThird)
	wake()
	if err != nil || !mustTell(known, end) {
		return err
	}
	return w.awaitTold(ctx, told)
}

// loseEnd kills all servers and starts them, a majority of them with the copies of their stores.
// It returns the sequence at which the stream goes on.
func (b *natsBus) loseEnd(ctx context.Context, emptyThird bool) (end uint64, err error) {
	w := b.world
	if err := w.quiet(ctx); err != nil {
		return 0, err
	}
	all, _, err := b.All()
	if err != nil {
		return 0, err
	}
	_ = b.kill()
	for n := range b.copied {
		if err := b.replaceDisk(n); err != nil {
			return 0, err
		}
		b.startServer(n)
	}
	b.awaitLeader(ctx)
	for n, s := range b.servers {
		if b.copied[n] == "" && emptyThird {
			s.Forget()
		}
	}
	b.heal()
	if end, err = b.agreed(ctx); err != nil {
		return 0, err
	}
	end++
	if len(all) > 0 && all[len(all)-1].Sequence >= end {
		w.loseEnds(all, "", map[int]uint64{0: end}, b.Rewind(end))
	}
	return end, nil
}

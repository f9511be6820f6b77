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

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// copyDisks copies the stores of servers, one after the other.
func (b *natsBus) copyDisks(ctx context.Context, servers ...int) error {
	if has, err := b.world.awaitStored(ctx, "there is something to copy"); !has {
		return err
	}
	clear(b.copied)
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

// putDiskBack replaces the store of a server with its copy. Before that, it waits until the third
// server has every message. So the cluster loses nothing, even if putDiskBack kills the leader before
// the server has caught up.
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
	if err := errors.Join(b.replaceDisk(n), b.othersAgree(ctx, n)); err != nil {
		return err
	}
	if killLeader && leader != n {
		b.killServer(leader)
	}
	b.startServer(n)
	return nil
}

// othersAgree waits until the servers that were not killed have a leader, and each of them has every message
// that any of them has. From then on, they store each message that they acknowledge.
func (b *natsBus) othersAgree(ctx context.Context, killed int) error {
	b.awaitLeader(ctx)
	ends := func() (ends []uint64) {
		for n, s := range b.servers {
			if n != killed {
				ends = append(ends, s.Stored(streamName))
			}
		}
		return ends
	}
	end := slices.Max(ends())
	return poll.Until(ctx, limit, "the other servers have the same", func(context.Context) error {
		if now := ends(); slices.Min(now) < end {
			return fmt.Errorf("they end at %d, and one ended at %d", now, end)
		}
		return nil
	})
}

// replaceDisk replaces the store of a killed server with its copy.
func (b *natsBus) replaceDisk(n int) error {
	b.servers[n].Forget()
	return os.CopyFS(b.servers[n].StoreDir(), os.DirFS(b.copied[n]))
}

// putDisksBack replaces the stores of a majority with their copies. The cluster then loses the messages that
// it acknowledged since the copies were made, unless the third server, which still has these messages,
// becomes the leader. The forwarders are frozen until the suite knows which messages were lost. Then one of
// them must report the loss.
//
// A third server that doesn't lead keeps the messages that the others lost, whatever the others store
// later. The forwarders must work despite that. emptyAhead ends this state.
func (b *natsBus) putDisksBack(ctx context.Context, third string) error {
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
	end, err := b.loseEnd(ctx, third)
	for _, n := range w.nodes {
		n.Signal(syscall.SIGCONT)
	}
	if err != nil || !mustTell(known, end) {
		return err
	}
	return w.awaitTold(ctx, told)
}

// emptyAhead restarts the servers that are ahead of the leader without their files, as
// docs/delivery.md says.
func (b *natsBus) emptyAhead(ctx context.Context) error {
	for _, n := range b.ahead {
		b.killServer(n)
		b.servers[n].Forget()
		b.startServer(n)
		if err := b.caughtUp(ctx, n); err != nil {
			return err
		}
	}
	b.ahead = nil
	return nil
}

// loseEnd kills all servers and starts them, a majority of them with the copies of their stores. It returns
// the sequence at which the stream continues, and notes the servers that have later messages. The third
// server also has more entries in the cluster's own log, so the cluster may not respond. In that case,
// loseEnd empties that server at once, as docs/delivery.md says.
func (b *natsBus) loseEnd(ctx context.Context, third string) (next uint64, err error) {
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
	for n := range b.copied {
		err := poll.Until(ctx, limit, "the server has joined", func(context.Context) error { return b.servers[n].Joined() })
		if err != nil {
			return 0, err
		}
	}
	if third == outrun {
		if err := b.stepDown(ctx, 5); err != nil {
			return 0, err
		}
	}
	for n, s := range b.servers {
		if b.copied[n] == "" && third == emptied3 {
			s.Forget()
		}
	}
	b.heal()
	soon, cancel := context.WithTimeout(ctx, 2*electionLimit)
	end, err := b.agreed(soon, true)
	cancel()
	if err != nil {
		w.t.Logf("the servers that were not put back are emptied: %v", err)
		for n := range b.servers {
			if b.copied[n] == "" {
				b.killServer(n)
				b.servers[n].Forget()
				b.startServer(n)
			}
		}
		end, err = b.agreed(ctx, true)
	}
	if err != nil {
		return 0, err
	}
	for n, s := range b.servers {
		if has := s.Stored(streamName); has > end {
			b.ahead = append(b.ahead, n)
			w.t.Logf("server %d ends at %d, the one that leads at %d", n, has, end)
		}
	}
	next = end + 1
	if len(all) > 0 && all[len(all)-1].Sequence >= next {
		w.loseEnds(all, "", map[int]uint64{0: next}, b.Rewind(next))
	}
	return next, nil
}

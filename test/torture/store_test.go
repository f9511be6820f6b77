package torture

import (
	"context"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// copyStore copies the server's store, like a backup of its disk.
func (b *natsBus) copyStore(ctx context.Context) error {
	if _, err := b.world.awaitStored(ctx, "there is something to copy"); err != nil {
		return err
	}
	b.killServer(0)
	b.copied[0] = filepath.Join(b.world.dir, "store")
	if err := os.CopyFS(b.copied[0], os.DirFS(b.servers[0].StoreDir())); err != nil {
		return err
	}
	return b.start(ctx)
}

// replaceStore restarts the server with a copy of its store, or with an empty store if by is "". The
// forwarders are frozen until the suite knows which messages were lost.
func (b *natsBus) replaceStore(ctx context.Context, by string) error {
	if has, err := b.world.awaitStored(ctx, "there is something to lose"); !has {
		return err
	}
	for _, n := range b.world.nodes {
		n.Signal(syscall.SIGSTOP)
		defer n.Signal(syscall.SIGCONT)
	}
	if err := b.world.quiet(ctx); err != nil {
		return err
	}
	b.killServer(0)
	b.servers[0].Forget()
	if by == "" {
		return b.start(ctx) // the recorder detects the new stream
	}
	if err := os.CopyFS(b.servers[0].StoreDir(), os.DirFS(by)); err != nil {
		return err
	}
	if err := b.start(ctx); err != nil {
		return err
	}
	all, _, err := b.All()
	if err != nil {
		return err
	}
	return poll.Until(ctx, limit, "the stream is looked at", func(ctx context.Context) error {
		s, err := b.JetStream().Stream(ctx, streamName)
		if err != nil {
			return err
		}
		end := s.CachedInfo().State.LastSeq + 1
		b.world.loseEnds(all, "", map[int]uint64{0: end}, b.Rewind(end))
		return nil
	})
}

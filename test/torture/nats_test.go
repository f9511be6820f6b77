package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/verify"
	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

const streamName = "KUBERELAY"

// natsBus is a NATS server, or a cluster of them, each in its own process.
type natsBus struct {
	*harness.NATSRecorder

	world   *world
	servers []*natstest.Process
	cluster *natstest.Processes // nil for a single server
	proxies []faultproxy.Group  // of each forwarder
	reading faultproxy.Group    // of the recorder
	full    bool
	down    map[int]bool   // servers that were killed
	frozen  map[int]bool   // servers
	held    map[int]bool   // servers whose replicas are held back
	copied  map[int]string // the directories with the copies of the servers' stores
	ahead   []int          // servers that have more messages than the leader
}

var _ bus = (*natsBus)(nil)

func startNATS(t testing.TB, w *world) *natsBus {
	b := &natsBus{world: w, down: map[int]bool{}, frozen: map[int]bool{}, held: map[int]bool{}, copied: map[int]string{}}
	if size := w.settings.cluster; size > 0 {
		command := ""
		if w.settings.former {
			var err error
			if command, err = controlplane.FormerNATSServer(t.Context(), os.Stderr); err != nil {
				t.Fatal(err)
			}
		}
		b.cluster = natstest.StartFormerProcesses(t, size, command)
		b.servers = b.cluster.Servers
	} else {
		b.servers = []*natstest.Process{natstest.StartProcess(t)}
	}
	for range w.forwarders() {
		b.proxies = append(b.proxies, b.connect(t))
	}
	b.reading = b.connect(t)
	var err error
	if b.NATSRecorder, err = harness.RecordNATS(urls(b.reading), streamName); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// connect starts the proxies of one client.
func (b *natsBus) connect(t testing.TB) (g faultproxy.Group) {
	for _, s := range b.servers {
		g = append(g, faultproxy.Start(t, strings.TrimPrefix(s.URL, "nats://")))
	}
	return g
}

// urls returns the addresses of proxies in the form of KUBERELAY_NATS_URL.
func urls(g faultproxy.Group) string {
	var all []string
	for _, p := range g {
		all = append(all, "nats://"+p.Addr())
	}
	return strings.Join(all, ",")
}

func (b *natsBus) links(n int) faultproxy.Group { return b.proxies[n] }

func (b *natsBus) variables(n int) map[string]string {
	s := b.world.settings
	return map[string]string{
		"NATS_URL": urls(b.proxies[n]), "NATS_REPLICAS": fmt.Sprint(len(b.servers)), "NATS_ACK_TIMEOUT": ackTimeout.String(),
		"NATS_HISTORY": fmt.Sprint(s.history), "NATS_MAX_IN_FLIGHT": fmt.Sprint(s.inFlight),
	}
}

func (b *natsBus) verified(o *verify.Options, cluster string) {
	o.NATS, o.NATSHistory = natsreader.Options{Stream: streamName, Cluster: cluster}, b.world.settings.history
	for _, s := range b.servers {
		o.NATS.URLs = append(o.NATS.URLs, s.URL)
	}
}

func (b *natsBus) kill() error {
	for n := range b.servers {
		b.killServer(n)
	}
	return nil
}

func (b *natsBus) freeze() error {
	for n := range b.servers {
		b.freezeServer(n)
	}
	return nil
}

func (b *natsBus) freezeServer(n int) {
	if !b.down[n] && !b.frozen[n] {
		b.servers[n].Freeze()
		b.frozen[n] = true
	}
}

func (b *natsBus) thaw() error {
	for n := range b.frozen {
		b.servers[n].Thaw()
	}
	clear(b.frozen)
	return nil
}

// execute implements [bus].
func (b *natsBus) execute(ctx context.Context, a act) error {
	switch a.do {
	case busFull:
		return b.fill(ctx)
	case busRoom:
		return b.unfill(ctx)
	case copyStore:
		return b.copyStore(ctx)
	case putBack:
		return b.replaceStore(ctx, b.copied[0])
	case emptyStore:
		return b.replaceStore(ctx, "")
	}
	if b.cluster != nil {
		return b.executeOnCluster(ctx, a)
	}
	return fmt.Errorf("unknown action %q", a.do)
}

func (b *natsBus) mend(ctx context.Context) error {
	if b.cluster != nil {
		b.heal()
	}
	return b.unfill(ctx)
}

// start starts the servers that were killed. In a world with purges, it compares the stream with its
// state before the kill, before the forwarders can connect.
func (b *natsBus) start(ctx context.Context) error {
	if b.world.purges() {
		for _, p := range b.proxies {
			p.Refuse()
			defer p.Pass()
		}
	}
	for n := range b.servers {
		b.startServer(n)
	}
	if !b.world.purges() {
		return nil
	}
	return poll.Until(ctx, limit, "the stream is compared with its former state", b.lookBack)
}

// wentBack records that the last message of a subject is an earlier message than before. This happens
// with NATS 2.15 after SIGKILL: messages that the limit per subject dropped return if the subject was
// purged since.
type wentBack struct {
	subject string
	to      uint64 // the position of the message
	from    uint64 // the last position of the stream at that time
}

// lookBack finds the messages that returned.
func (b *natsBus) lookBack(ctx context.Context) error {
	s, err := b.JetStream().Stream(ctx, streamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return err
	}
	all, _, err := b.All()
	if err != nil {
		return err
	}
	had := map[string]uint64{}
	for _, m := range all {
		had[m.Subject] = m.Sequence
	}
	var found []wentBack
	for subject := range info.State.Subjects {
		m, err := s.GetLastMsgForSubject(ctx, subject)
		if errors.Is(err, nats.ErrBadHeaderMsg) {
			continue // a foreign message
		}
		if err != nil {
			return err
		}
		if m.Sequence < had[subject] {
			found = append(found, wentBack{subject, m.Sequence, info.State.LastSeq})
		}
	}
	b.world.wentBack = append(b.world.wentBack, found...)
	return nil
}

// fill makes the stream refuse messages.
func (b *natsBus) fill(ctx context.Context) error {
	return b.editStream(ctx, func(s jetstream.StreamState, c *jetstream.StreamConfig) {
		b.full = true
		c.MaxMsgs = int64(max(s.Msgs, 1))
	})
}

func (b *natsBus) unfill(ctx context.Context) error {
	if !b.full {
		return nil
	}
	return b.editStream(ctx, func(_ jetstream.StreamState, c *jetstream.StreamConfig) {
		b.full = false
		c.MaxMsgs = -1
	})
}

func (b *natsBus) editStream(ctx context.Context, edit func(jetstream.StreamState, *jetstream.StreamConfig)) error {
	return poll.Until(ctx, limit, "the stream is changed", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, opTimeout)
		defer cancel()
		s, err := b.JetStream().Stream(ctx, streamName)
		if err != nil {
			return err
		}
		c := s.CachedInfo().Config
		edit(s.CachedInfo().State, &c)
		_, err = b.JetStream().UpdateStream(ctx, c)
		return err
	})
}

// purged implements [bus].
func (b *natsBus) purged(ctx context.Context, m harness.Received) (bool, error) {
	s, err := b.JetStream().Stream(ctx, streamName)
	if err != nil {
		return false, err
	}
	_, err = s.GetLastMsgForSubject(ctx, m.Subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	return false, err
}

// lose implements [bus].
func (b *natsBus) lose(ctx context.Context, objects int) (lost []harness.Place, err error) {
	all, _, err := b.All()
	if err != nil {
		return nil, err
	}
	s, err := b.JetStream().Stream(ctx, streamName)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for n := len(all) - 1; n >= 0 && objects > 0; n-- {
		m := all[n]
		if seen[m.Subject] || isMarker(m) || b.world.lost[m.Place] {
			continue
		}
		seen[m.Subject] = true
		if err := s.DeleteMsg(ctx, m.Sequence); err != nil {
			if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
				continue // purged
			}
			return lost, err
		}
		lost = append(lost, m.Place)
		objects--
	}
	return lost, nil
}

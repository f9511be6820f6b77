package torture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/verify"
	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

const streamName = "KUBERELAY"

// natsBus is a NATS server in its own process.
type natsBus struct {
	*harness.NATSRecorder

	world   *world
	server  *natstest.Process
	proxies []*faultproxy.Proxy
	full    bool
	copied  string // the folder with the copy of the store
}

var _ bus = (*natsBus)(nil)

func startNATS(t testing.TB, w *world) *natsBus {
	b := &natsBus{world: w, server: natstest.StartProcess(t)}
	for range w.forwarders() {
		b.proxies = append(b.proxies, faultproxy.Start(t, strings.TrimPrefix(b.server.URL, "nats://")))
	}
	var err error
	if b.NATSRecorder, err = harness.RecordNATS(b.server.URL, streamName); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func (b *natsBus) links(n int) faultproxy.Group { return faultproxy.Group{b.proxies[n]} }

func (b *natsBus) variables(n int) map[string]string {
	s := b.world.settings
	return map[string]string{
		"NATS_URL": "nats://" + b.proxies[n].Addr(), "NATS_ACK_TIMEOUT": ackTimeout.String(),
		"NATS_HISTORY": fmt.Sprint(s.history), "NATS_MAX_IN_FLIGHT": fmt.Sprint(s.inFlight),
	}
}

func (b *natsBus) verified(o *verify.Options, cluster string) {
	o.NATS, o.NATSHistory = natsreader.Options{URLs: []string{b.server.URL}, Stream: streamName, Cluster: cluster}, b.world.settings.history
}

func (b *natsBus) kill() error   { b.server.Kill(); return nil }
func (b *natsBus) freeze() error { b.server.Freeze(); return nil }
func (b *natsBus) thaw() error   { b.server.Thaw(); return nil }

// execute is [bus]'s.
func (b *natsBus) execute(ctx context.Context, a act) error {
	switch a.do {
	case busFull:
		return b.fill(ctx)
	case busRoom:
		return b.unfill(ctx)
	case copyStore:
		return b.copyStore(ctx)
	case putBack:
		return b.replaceStore(ctx, b.copied)
	case emptyStore:
		return b.replaceStore(ctx, "")
	}
	return fmt.Errorf("unknown deed %q", a.do)
}

func (b *natsBus) mend(ctx context.Context) error { return b.unfill(ctx) }

// start starts the server after it was killed. Before the forwarders reach it, the stream is
// compared with its state before the kill.
func (b *natsBus) start(ctx context.Context) error {
	if b.world.purges() {
		for _, p := range b.proxies {
			p.Refuse()
			defer p.Pass()
		}
	}
	b.server.Start()
	if !b.world.purges() {
		return nil
	}
	return harness.Eventually(ctx, limit, "the stream is looked at", b.lookBack)
}

// wentBack records that the last message of a subject is an earlier one than before. NATS 2.15
// does so after SIGKILL: messages that the limit per subject dropped return if the subject was
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
	return harness.Eventually(ctx, limit, "the stream is changed", func(ctx context.Context) error {
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

// purged is [bus]'s.
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

// lose is [bus]'s.
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

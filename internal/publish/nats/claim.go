package nats

import (
	"context"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// LastClaim returns the owner of the cluster name on the bus. It returns the zero value if the bus
// has no claim. If the last message on the claim's subject is not a claim, LastClaim sets only the
// position.
func (b *Bus) LastClaim(ctx context.Context) (event.Claim, error) {
	subject := subject.Claim(b.opts.SubjectPrefix, b.opts.Cluster)
	s, err := b.conn.GetMessage(ctx, stream.LastRequest(subject))
	switch {
	case err != nil:
		return event.Claim{}, fmt.Errorf("read the owner of cluster name %s on the bus: %w", b.opts.Cluster, err)
	case s == nil:
		return event.Claim{}, nil
	}
	m, err := s.Decode()
	var c event.Claim
	if err == nil {
		c, err = event.ClaimFrom(m)
		c.IsRow = err == nil && binding.IsRow(s.Headers)
	}
	if err != nil {
		b.opts.Invalid.Report("", s.Sequence, err, "subject", subject)
	}
	c.Position = s.Sequence
	return c, nil
}

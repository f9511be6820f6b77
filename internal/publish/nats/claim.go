package nats

import (
	"context"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
)

// LastClaim reads which cluster has the name that this bus was opened with, the zero
// value if the bus does not say. What somebody else has put in the claim's place has a
// position only.
func (b *Bus) LastClaim(ctx context.Context) (event.Claim, error) {
	subject := event.ClaimSubject(b.opts.SubjectPrefix, b.opts.Cluster)
	s, err := b.getMessage(ctx, lastRequest(subject))
	switch {
	case err != nil:
		return event.Claim{}, fmt.Errorf("read who has the name %s on the bus: %w", b.opts.Cluster, err)
	case s == nil:
		return event.Claim{}, nil
	}
	m, err := Decode(s.headers, s.data)
	var c event.Claim
	if err == nil {
		c, err = event.ClaimFrom(m)
	}
	if err != nil {
		b.log.Warn("a message on the bus is no event of ours", "subject", subject, "position", s.sequence, "err", err)
	}
	c.Position = s.sequence
	return c, nil
}

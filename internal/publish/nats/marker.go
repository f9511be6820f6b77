package nats

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// LastMarker reads the last snapshot marker of a resource and gives its type and
// id, "" if there is none.
func (b *Bus) LastMarker(ctx context.Context, gr schema.GroupResource) (t event.Type, id string, err error) {
	s, err := b.getMessage(ctx, lastRequest(event.MarkerSubject(b.opts.SubjectPrefix, b.opts.Cluster, gr)))
	if err != nil {
		return "", "", fmt.Errorf("read the snapshot marker of %s: %w", gr, err)
	}
	if s == nil {
		return "", "", nil
	}
	attribute := s.attribute()
	return event.Type(attribute("type")), attribute("id"), nil
}

package nats

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// LastMarker returns the type and ID of the last snapshot marker of a resource, or "" if the resource has
// none. It ignores a marker of an earlier release, because such a marker is a row in a bucket that mirrors
// the stream. The caller then publishes another marker, which removes the row.
func (b *Bus) LastMarker(ctx context.Context, gr schema.GroupResource) (t event.Type, id string, err error) {
	s, err := b.conn.GetMessage(ctx, stream.LastRequest(subject.Marker(b.opts.SubjectPrefix, b.opts.Cluster, gr)))
	if err != nil {
		return "", "", fmt.Errorf("read the snapshot marker of %s: %w", gr, err)
	}
	if s == nil || binding.IsRow(s.Headers) {
		return "", "", nil
	}
	attribute := s.Attributes()
	return event.Type(attribute("type")), attribute("id"), nil
}

package controlplane

import (
	"context"
	"io"
	"path/filepath"
)

// natsServerArtifact is a NATS server of an earlier release, for upgrade tests.
var natsServerArtifact = artifact{
	name:   "natsserver",
	source: "natsserver",
	args:   func(string) ([]string, error) { return []string{"-ldflags=-s -w", "."}, nil },
}

// FormerNATSServer returns the path of a NATS server of the previous release. If the server isn't in
// the cache, FormerNATSServer builds it. See hack/controlplane/natsserver.
func FormerNATSServer(ctx context.Context, log io.Writer) (string, error) {
	dir, err := cached(ctx, log, natsServerArtifact)
	return filepath.Join(dir, natsServerArtifact.name), err
}

package controlplane

import (
	"context"
	"io"
	"path/filepath"
)

// natsServerArtifact is a NATS server of an earlier release, for tests of an upgrade.
var natsServerArtifact = artifact{
	name:   "natsserver",
	source: "natsserver",
	args:   func(string) ([]string, error) { return []string{"-ldflags=-s -w", "."}, nil },
}

// FormerNATSServer returns a NATS server of the release before, and builds it if it isn't in the
// cache. See hack/controlplane/natsserver.
func FormerNATSServer(ctx context.Context, log io.Writer) (string, error) {
	dir, err := cached(ctx, log, natsServerArtifact)
	return filepath.Join(dir, natsServerArtifact.name), err
}

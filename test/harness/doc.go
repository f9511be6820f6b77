// Package harness runs the built forwarder for end-to-end tests as users run it: as a process that
// is configured by environment variables, with a real API server and a real bus. Tests don't call
// the forwarder's code.
//
// The functions return errors instead of failing a test, so that a test can expect an error.
package harness

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Build builds the forwarder with the given build tags and writes the binary to the path to. If the
// caller was built with the race detector, the forwarder is too.
func Build(ctx context.Context, to string, tags ...string) error {
	return build(ctx, "", tags, "build", "-o", to)
}

// BuildVersion is Build for a forwarder that reports the given version.
func BuildVersion(ctx context.Context, version, to string) error {
	return build(ctx, "", nil, "build", "-ldflags", "-X main.version="+version, "-o", to)
}

// BuildWith is Build with an overlay from [Patch].
func BuildWith(ctx context.Context, overlay, to string, tags ...string) error {
	return build(ctx, overlay, tags, "build", "-o", to)
}

// CompileWith is BuildWith without linking, which takes most of the time of a build. BuildWith can
// reuse the result from the build cache.
func CompileWith(ctx context.Context, overlay string, tags ...string) error {
	return build(ctx, overlay, tags, "list", "-export")
}

func build(ctx context.Context, overlay string, tags []string, args ...string) error {
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	if RaceEnabled {
		args = append(args, "-race")
	}
	if len(tags) > 0 {
		args = append(args, "-tags", strings.Join(tags, ","))
	}
	out, err := exec.CommandContext(ctx, "go", append(args, "github.com/kuberelay/kuberelay/cmd/forwarder")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the forwarder: %w\n%s", err, out)
	}
	return nil
}

// interval is the time between two looks at a bus.
const interval = 20 * time.Millisecond

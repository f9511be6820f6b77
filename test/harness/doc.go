// Package harness runs the built forwarder for end-to-end tests as users run it: as a process that
// is configured by its environment, with a real API server and a real bus. Tests don't call the
// forwarder's code.
//
// Its functions return errors and don't fail a test, so that a test can expect an error.
package harness

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Build builds the forwarder into the file to, with build tags, and with the race detector if the
// caller was built with it.
func Build(ctx context.Context, to string, tags ...string) error {
	return build(ctx, "", tags, "build", "-o", to)
}

// BuildVersion is Build with a version string.
func BuildVersion(ctx context.Context, version, to string) error {
	return build(ctx, "", nil, "build", "-ldflags", "-X main.version="+version, "-o", to)
}

// BuildWith is Build with an overlay from [Patch].
func BuildWith(ctx context.Context, overlay, to string, tags ...string) error {
	return build(ctx, overlay, tags, "build", "-o", to)
}

// CompileWith is BuildWith without linking, which takes most of the time of a build. The build
// cache keeps the result for BuildWith.
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

// poll is the interval between the tries of Eventually.
const poll = 20 * time.Millisecond

// Eventually calls try until it succeeds. It returns the last error of try when ctx ends or the
// limit has passed.
func Eventually(ctx context.Context, limit time.Duration, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // an error after the end of ctx only says that ctx ended
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, last)
		case <-ticker.C:
		}
	}
}

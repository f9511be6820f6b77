// Package harness runs the built forwarder for tests of the whole, as its users
// run it: as a process that is set by its environment, beside a real API server
// and a real bus. Nothing of the forwarder's own code is in between.
//
// Its functions return errors and fail no test, so that a test may as well expect
// one.
package harness

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Build builds the forwarder into the file to, with the race detector if the
// caller was built with it, and with build tags.
func Build(ctx context.Context, to string, tags ...string) error {
	return build(ctx, "", tags, "build", "-o", to)
}

// BuildWith is Build with an overlay that [Patch] has made.
func BuildWith(ctx context.Context, overlay, to string, tags ...string) error {
	return build(ctx, overlay, tags, "build", "-o", to)
}

// CompileWith is BuildWith without the link, which takes most of the time of a build.
// Go's build cache keeps the result for BuildWith.
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

// poll is how often Eventually tries.
const poll = 20 * time.Millisecond

// Eventually tries until try succeeds, and gives up with its last error when ctx
// ends or the limit has passed.
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
		if last == nil || ctx.Err() == nil { // else it says no more than that
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("never: %s: %w", what, last)
		case <-ticker.C:
		}
	}
}

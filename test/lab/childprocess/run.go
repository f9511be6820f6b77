package childprocess

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// progressInterval is the interval of progress messages during a long wait.
const progressInterval = 15 * time.Second

// Patient returns a command that receives SIGTERM when ctx is done, and SIGKILL if it hasn't ended ten
// seconds later.
func Patient(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// Run runs a long command and waits for its end. It writes a message to log when the command starts,
// every 15 seconds, and when the command succeeds. The argument what describes the command's purpose
// in these messages. The error contains the last lines of the command's output.
func Run(log io.Writer, what string, cmd *exec.Cmd) error {
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	start := time.Now()
	fmt.Fprintf(log, "%s ...\n", what)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fmt.Fprintf(log, "%s: %s so far ...\n", what, time.Since(start).Round(time.Second))
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("%s: %w\n%s", what, err, LastLines(output.String(), logLines))
			}
			fmt.Fprintf(log, "%s: took %s\n", what, time.Since(start).Round(time.Second))
			return nil
		}
	}
}

package childprocess

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// progressInterval is the interval of progress messages during a long wait.
const progressInterval = 15 * time.Second

// Run runs a command that takes long, and tells log so at once, every 15 seconds
// and when it has done what it is for. The error has the end of the command's output.
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

// Package apt installs Debian packages that tests need, on systems with apt-get.
package apt

import (
	"context"
	"io"
	"os"
	"os/exec"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// Run runs apt-get without prompts and waits until it has ended. If another apt-get holds the
// package lock, apt-get waits up to five minutes for it. Run writes its progress to log. The
// argument what describes the command's purpose in these messages.
func Run(ctx context.Context, log io.Writer, what string, args ...string) error {
	aptGet, err := exec.LookPath("apt-get")
	if err != nil {
		return err
	}
	cmd := childprocess.Patient(ctx, aptGet, append([]string{"-q", "-y", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	return childprocess.Run(log, what, cmd)
}

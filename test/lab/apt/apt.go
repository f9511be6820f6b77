// Package apt installs Debian packages that tests need, on systems with apt-get.
package apt

import (
	"context"
	"io"
	"os"
	"os/exec"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// Run runs apt-get without questions, and waits for the lock of another one. It tells log what it does,
// and blocks until apt-get has ended.
func Run(ctx context.Context, log io.Writer, what string, args ...string) error {
	aptGet, err := exec.LookPath("apt-get")
	if err != nil {
		return err
	}
	cmd := childprocess.Patient(ctx, aptGet, append([]string{"-q", "-y", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	return childprocess.Run(log, what, cmd)
}

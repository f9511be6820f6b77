package browsertest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/kuberelay/kuberelay/test/lab/apt"
)

// names are the commands of Chromium and of browsers that are based on it, on different systems.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

const howToInstall = `install Chromium:
  Debian:  apt-get install chromium fonts-inter
  Fedora:  dnf install chromium
or put a command chromium into PATH`

// find returns the path of the browser. If no browser is installed, find installs Chromium when it runs
// as root on Debian.
func find(ctx context.Context, log io.Writer) (string, error) {
	if path, ok := look(); ok {
		return path, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return "", fmt.Errorf("there is no Chromium in PATH\n%s", howToInstall)
	}
	if err := apt.Run(ctx, log, "updating apt-get's lists", "update"); err != nil {
		return "", fmt.Errorf("%w\n%s", err, howToInstall)
	}
	if err := apt.Run(ctx, log, "installing chromium with apt-get", "install", "--no-install-recommends", "chromium", "fonts-inter"); err != nil {
		return "", fmt.Errorf("%w\n%s", err, howToInstall)
	}
	if path, ok := look(); ok {
		return path, nil
	}
	return "", fmt.Errorf("there is no Chromium in PATH, even after apt-get\n%s", howToInstall)
}

func look() (string, bool) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}

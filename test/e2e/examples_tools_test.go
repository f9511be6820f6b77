//go:build tools

package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"
)

var examples = map[string]func(*testing.T) []string{"Go": goExample, "Python": pythonExample}

// natsPy is the client version that the test installs for the Python example.
const natsPy = "nats-py==2.11.0"

// pythonExample installs the client into a virtual environment and returns the example's command.
func pythonExample(t *testing.T) []string {
	t.Helper()
	venv := filepath.Join(t.TempDir(), "venv")
	for _, command := range [][]string{
		{"python3", "-m", "venv", venv},
		{filepath.Join(venv, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", natsPy},
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	return []string{filepath.Join(venv, "bin", "python"), "../../examples/subscriber-python/subscriber.py"}
}

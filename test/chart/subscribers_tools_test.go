//go:build tools

package chart

import (
	"path/filepath"
	"testing"
)

var subscribers = map[string]func(*testing.T) []string{"Go": goSubscriber, "Python": pythonSubscriber}

// natsPy is the version of the Python client that the example is tested with.
const natsPy = "nats-py==2.11.0"

// pythonSubscriber installs the Python client into its own directory and returns the command of the
// example.
func pythonSubscriber(t *testing.T) []string {
	t.Helper()
	venv := filepath.Join(t.TempDir(), "venv")
	for _, command := range [][]string{
		{"python3", "-m", "venv", venv},
		{filepath.Join(venv, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", natsPy},
	} {
		if _, stderr, err := run(t.Context(), "", command[0], command[1:]...); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, stderr)
		}
	}
	return []string{filepath.Join(venv, "bin", "python"), root + "/examples/subscriber-python/subscriber.py"}
}

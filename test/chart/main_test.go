// Package chart tests charts/kuberelay and the examples the way users use them. Helm renders the
// chart, and the tests apply the result to a real API server with RBAC, Pod Security admission and
// an audit log.
package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

const (
	root  = "../.."
	chart = root + "/charts/kuberelay"

	// limit limits every wait. The limit is generous, because only a failing test reaches it.
	limit = 5 * time.Minute
)

var (
	cluster  controlplanetest.Shared
	auditLog string // the API server's audit log: one line per completed request
	binary   string // built with the race detector if the test is
)

// auditPolicy logs every request without its content.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "kuberelay-chart-")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(auditPolicy), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	auditLog, binary = filepath.Join(dir, "audit.log"), filepath.Join(dir, "forwarder")
	cluster.Options = controlplane.Options{APIServerFlags: []string{
		"--audit-policy-file=" + filepath.Join(dir, "policy.yaml"),
		"--audit-log-path=" + auditLog,
		"--audit-log-mode=blocking", // the API server logs a request before it responds
	}}
	code := cluster.Run(m)
	os.RemoveAll(dir)
	os.Exit(code)
}

// tool returns the path of a tool that the Makefile builds on first use.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := tools[name]()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var tools = map[string]func() (string, error){"helm": which("helm"), "helm-unittest": which("helm-unittest"), "promtool": which("promtool")}

func which(name string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		out, stderr, err := run(context.Background(), "", "make", "--no-print-directory", "-s", "-C", root, "which-"+name)
		if err != nil {
			return "", fmt.Errorf("make which-%s: %w\n%s", name, err, stderr)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		return lines[len(lines)-1], nil
	})
}

// run runs a command until it ends.
func run(ctx context.Context, stdin, name string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "MAKE") && !strings.HasPrefix(pair, "MFLAGS=") { // variables of the make that runs the test
			cmd.Env = append(cmd.Env, pair)
		}
	}
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		err = fmt.Errorf("run %s: %w", name, err)
	}
	return out.String(), errOut.String(), err
}

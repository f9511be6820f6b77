package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// printed collects the output lines of an example subscriber.
type printed struct {
	mu    sync.Mutex
	lines []string
}

func (p *printed) has(line string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if strings.HasPrefix(l, line) {
			return nil
		}
	}
	return fmt.Errorf("%d lines, the last ones %q", len(p.lines), p.lines[max(0, len(p.lines)-3):])
}

// runExample runs an example subscriber until the test ends.
func runExample(t *testing.T, url string, command []string) *printed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env, cmd.Stderr = []string{"NATS_URL=" + url, "PATH=" + os.Getenv("PATH")}, os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p, ended := &printed{}, make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, lines.Text())
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended; _ = cmd.Wait() })
	return p
}

// goExample builds the Go example and returns its command.
func goExample(t *testing.T) []string {
	t.Helper()
	built := filepath.Join(t.TempDir(), "subscriber")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", built, "../../examples/subscriber-go")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the subscriber: %v\n%s", err, out)
	}
	return []string{built}
}

// TestExamplesRefuseCredentials verifies that the examples exit if the URL contains credentials.
// Their message must not contain the URL.
func TestExamplesRefuseCredentials(t *testing.T) {
	for name, prepare := range examples {
		t.Run(name, func(t *testing.T) { checkCredentials(t, prepare(t)...) })
	}
}

// TestExamplesWhoseBusComesBackEmpty_Slow verifies that the examples notice a new stream. The bus loses
// all data while their stock clients stay connected. Earlier versions of the examples reported no
// error. They waited until the new stream reached their position in the old one, and missed every
// event before it. Now they receive every event in the new stream and report that the stream is new.
func TestExamplesWhoseBusComesBackEmpty_Slow(t *testing.T) {
	bus := natsServer(t)
	f, cp := sharedForwarder(t, bus.URL, map[string]string{"RESOURCES": "configmaps"})
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	u.create(configMaps, namespace, configMap("old", "0"))
	f.start().idle()
	for round := range 100 { // make the old stream longer than the new one
		u.label(configMaps, namespace, "old", fmt.Sprint(round))
		f.idle()
	}
	running := map[string]*printed{}
	for name, prepare := range examples {
		running[name] = runExample(t, bus.URL, prepare(t))
	}
	eachHas := func(line string) {
		t.Helper()
		for name, p := range running {
			poll.Try(t, fmt.Sprintf("the example in %s has printed %q", name, line), func(context.Context) error { return p.has(line) })
		}
	}
	path := "/api/v1/namespaces/" + namespace + "/configmaps/"
	eachHas("updated " + path + "old")
	bus.Kill()
	bus.Forget()
	bus.Start()
	u.create(configMaps, namespace, configMap("new", "1"))
	f.idle()
	eachHas("stream recreated /kubernetes/" + clusterName)
	eachHas("created " + path + "old")
	eachHas("created " + path + "new")
	f.stop()
}

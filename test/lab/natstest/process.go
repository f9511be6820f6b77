//go:build unix

package natstest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// childEnv makes a copy of the test's binary a server. Its value is the configuration file.
const childEnv = "KUBERELAY_TEST_NATS_SERVER"

// RunIfChild makes this process a server, and doesn't return, if [StartProcess] asked for it. Call
// it first in TestMain of every package that uses [StartProcess].
func RunIfChild() {
	asked := os.Getenv(childEnv)
	if asked == "" {
		return
	}
	if err := runChild(asked); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runChild(asked string) error {
	opts, err := server.ProcessConfigFile(asked) // SIGHUP reloads the file
	if err != nil {
		return err
	}
	opts.NoLog = true
	ns, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	ns.Start()
	if !ns.ReadyForConnections(startLimit) {
		return fmt.Errorf("not ready after %s", startLimit)
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1)) // returns when the parent ends, for any reason
	return nil
}

// Process is a server in its own process.
type Process struct {
	// URL is for clients. It stays the same across restarts.
	URL string

	t             testing.TB
	port, monitor int
	dir           string
	cmd           *exec.Cmd
}

// StartProcess starts a server with JetStream in its own process and kills it with the test. The
// configuration, in the syntax of the server's configuration file, is added to the basic one.
func StartProcess(t testing.TB, configuration ...string) *Process {
	t.Helper()
	p := &Process{t: t, port: FreePort(t), monitor: FreePort(t), dir: t.TempDir()}
	p.URL = "nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port))
	p.write(configuration)
	p.Start()
	t.Cleanup(p.Kill)
	return p
}

func (p *Process) configFile() string { return filepath.Join(p.dir, "nats.conf") }

// StoreDir is where the server keeps its files.
func (p *Process) StoreDir() string { return filepath.Join(p.dir, "store") }

func (p *Process) write(configuration []string) {
	p.t.Helper()
	text := fmt.Sprintf("listen: \"127.0.0.1:%d\"\nhttp: \"127.0.0.1:%d\"\njetstream: {store_dir: %q}\n%s\n",
		p.port, p.monitor, p.StoreDir(), strings.Join(configuration, "\n"))
	if err := os.WriteFile(p.configFile(), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// Configure replaces the configuration from [StartProcess] and waits until the running server has
// read it. The server disconnects users that may no longer connect.
func (p *Process) Configure(configuration ...string) {
	p.t.Helper()
	var before, after server.Varz
	p.ask("varz", &before)
	p.write(configuration)
	p.signal(syscall.SIGHUP)
	for deadline := time.Now().Add(startLimit); !after.ConfigLoadTime.After(before.ConfigLoadTime); p.ask("varz", &after) {
		if time.Now().After(deadline) {
			p.t.Fatal("the NATS server does not take its new configuration")
		}
	}
}

// Connections returns the open connections with their users.
func (p *Process) Connections() []*server.ConnInfo {
	p.t.Helper()
	var all server.Connz
	p.ask("connz?auth=true", &all)
	return all.Conns
}

// ask sends a request to the server's monitoring endpoint.
func (p *Process) ask(path string, answer any) {
	p.t.Helper()
	url := fmt.Sprintf("http://127.0.0.1:%d/%s", p.monitor, path)
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		p.t.Fatalf("%s: %v", url, err)
	}
}

// Start starts a killed server on the same port and files.
func (p *Process) Start() {
	p.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$") // runs no test if TestMain doesn't call RunIfChild
	cmd.Env = append(os.Environ(), childEnv+"="+p.configFile())
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.cmd = cmd
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		p.Kill()
		p.t.Fatalf("the NATS server's process says %q (%v); does TestMain call natstest.RunIfChild?", line, err)
	}
}

// Kill kills the process with SIGKILL and waits until it has ended.
func (p *Process) Kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait() // the error is that it was killed
	p.cmd = nil
}

// Forget removes the files of a killed server, so that it starts empty.
func (p *Process) Forget() {
	p.t.Helper()
	if err := os.RemoveAll(p.StoreDir()); err != nil {
		p.t.Fatal(err)
	}
}

// Freeze stops the process and waits until it has stopped: connections stay, and nothing answers.
func (p *Process) Freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		p.t.Fatalf("the NATS server did not stop: %v", err)
	}
}

// Thaw resumes a frozen process.
func (p *Process) Thaw() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

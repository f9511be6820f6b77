//go:build unix

package natstest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// childEnv tells a copy of the test's binary to be a server: "port store".
const childEnv = "KUBERELAY_TEST_NATS_SERVER"

// RunIfChild makes this process a server, for good, if [StartProcess] asked for it.
// Call it first in TestMain of every package that uses [StartProcess].
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
	opts := &server.Options{Host: "127.0.0.1", JetStream: true, NoSigs: true, NoLog: true}
	if _, err := fmt.Sscanf(asked, "%d %q", &opts.Port, &opts.StoreDir); err != nil {
		return err
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	ns.Start()
	if !ns.ReadyForConnections(startLimit) {
		return fmt.Errorf("not ready after %s", startLimit)
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1)) // ends with the parent, however that ends
	return nil
}

// Process is a server in a process of its own.
type Process struct {
	// URL is for clients. It stays the same when the server is started again.
	URL string

	t     testing.TB
	port  int
	store string
	cmd   *exec.Cmd
}

// StartProcess starts a server with JetStream in a process of its own, and kills it
// with the test.
func StartProcess(t testing.TB) *Process {
	t.Helper()
	p := &Process{t: t, port: FreePort(t), store: t.TempDir()}
	p.URL = "nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port))
	p.Start()
	t.Cleanup(p.Kill)
	return p
}

// Start starts a killed server again, on the same port and files.
func (p *Process) Start() {
	p.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$") // should RunIfChild not be called
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %q", childEnv, p.port, p.store))
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

// Kill ends the process as kill -9 does, and waits until it is gone.
func (p *Process) Kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait() // it says that it was killed
	p.cmd = nil
}

// Forget removes the files of a killed server, so that it starts empty.
func (p *Process) Forget() {
	p.t.Helper()
	if err := os.RemoveAll(p.store); err != nil {
		p.t.Fatal(err)
	}
}

// Freeze stops the process without ending it, and waits until it has stopped:
// connections stay, nothing answers.
func (p *Process) Freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		p.t.Fatalf("the NATS server did not stop: %v", err)
	}
}

// Thaw lets a frozen process go on.
func (p *Process) Thaw() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

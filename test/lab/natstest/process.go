//go:build unix

package natstest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// childEnv is the environment variable that makes the test binary run a server. Its value is the path
// of the configuration file.
const childEnv = "KUBERELAY_TEST_NATS_SERVER"

// RunIfChild runs a server, and doesn't return while the server runs, if [StartProcess] started this
// process. Call it first in TestMain of every package that uses [StartProcess].
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
	opts, err := server.ProcessConfigFile(asked) // SIGHUP makes the server reload this file
	if err != nil {
		return err
	}
	opts.NoLog = true
	if opts.Cluster.Port != 0 {
		hurryElections()
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
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); { // the input ends when the parent ends, for any reason
		if err := obey(ns, orders.Text()); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(done)
	}
	return nil
}

// A parent writes the orders hold and release to a server's standard input, each followed by the name
// of a stream. The server writes done after it has obeyed an order.
const (
	hold    = "hold"
	release = "release"
	done    = "done"
)

func obey(ns *server.Server, order string) error {
	verb, stream, _ := strings.Cut(order, " ")
	replica, err := lookupStream(ns.GlobalAccount(), stream)
	if err != nil {
		return err
	}
	if replica == nil || raftNode(replica) == nil {
		return fmt.Errorf("no replica of %s runs yet", stream)
	}
	if verb == release {
		raftNode(replica).ResumeApply()
		return nil
	}
	return raftNode(replica).PauseApply()
}

// Process is a server in its own process.
type Process struct {
	// URL is the client URL. It stays the same across restarts.
	URL string

	t             testing.TB
	port, monitor int
	dir           string
	former        string // the command of an earlier release, "" for the current release
	cmd           *exec.Cmd
	orders        io.Writer
	answers       *bufio.Reader
}

// StartProcess starts a server with JetStream in its own process and kills it at the end of the test.
// The basic configuration is extended with configuration, in the syntax of the server's configuration
// file.
func StartProcess(t testing.TB, configuration ...string) *Process {
	t.Helper()
	return startProcess(t, "", configuration...)
}

// startProcess is StartProcess for a server of an earlier release, which the command former runs.
func startProcess(t testing.TB, former string, configuration ...string) *Process {
	t.Helper()
	p := &Process{t: t, port: FreePort(t), monitor: FreePort(t), dir: t.TempDir(), former: former}
	p.URL = "nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port))
	p.write(configuration)
	p.Start()
	t.Cleanup(p.Kill)
	return p
}

func (p *Process) configFile() string { return filepath.Join(p.dir, "nats.conf") }

// StoreDir returns the directory where the server keeps its files.
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
// loaded it. The server disconnects users that may no longer connect.
func (p *Process) Configure(configuration ...string) {
	p.t.Helper()
	var before, after server.Varz
	p.ask("varz", &before)
	p.write(configuration)
	p.signal(syscall.SIGHUP)
	for deadline := time.Now().Add(startLimit); !after.ConfigLoadTime.After(before.ConfigLoadTime); p.ask("varz", &after) {
		if time.Now().After(deadline) {
			p.t.Fatal("the NATS server does not load its new configuration")
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

// Stored returns the sequence of the last message in this server's replica of a stream, or 0 if the
// server has no replica.
func (p *Process) Stored(stream string) uint64 { return p.state(stream).LastSeq }

// Messages returns the number of messages in this server's replica of a stream.
func (p *Process) Messages(stream string) uint64 { return p.state(stream).Msgs }

func (p *Process) state(stream string) (none server.StreamState) {
	p.t.Helper()
	var of server.JSInfo
	p.ask("jsz?accounts=true&streams=true", &of)
	for _, a := range of.AccountDetails {
		for _, s := range a.Streams {
			if s.Name == stream {
				return s.State
			}
		}
	}
	return none
}

// Version returns the version of the running server.
func (p *Process) Version() string {
	p.t.Helper()
	var of server.Varz
	p.ask("varz", &of)
	return of.Version
}

// Joined returns an error unless the server knows which server leads its cluster.
func (p *Process) Joined() error {
	p.t.Helper()
	var of server.JSInfo
	p.ask("jsz", &of)
	if of.Meta == nil || of.Meta.Leader == "" {
		return errors.New("the cluster has no leader")
	}
	return nil
}

// ask sends a request to the server's monitoring endpoint and decodes the JSON response.
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

// Start starts the server. A killed server keeps its ports and files.
func (p *Process) Start() {
	p.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$") // runs no test, even if TestMain doesn't call RunIfChild
	cmd.Env = append(os.Environ(), childEnv+"="+p.configFile())
	if p.former != "" {
		cmd = exec.Command(p.former, p.configFile())
	}
	cmd.Stderr = os.Stderr
	orders, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.cmd, p.orders, p.answers = cmd, orders, bufio.NewReader(out)
	if line, err := p.answers.ReadString('\n'); line != "ready\n" {
		p.Kill()
		p.t.Fatalf("the NATS server's process prints %q (%v); does TestMain call natstest.RunIfChild?", line, err)
	}
}

// Upgrade makes the next start run the current release.
func (p *Process) Upgrade() { p.former = "" }

// Kill kills the process with SIGKILL and waits until it has ended.
func (p *Process) Kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait() // the error only says that the process was killed
	p.cmd = nil
}

// Stop ends the process with SIGTERM. On SIGTERM, the server hands over the streams and consumers that
// it leads.
func (p *Process) Stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	_ = p.cmd.Wait() // the server's exit code doesn't matter
	p.cmd = nil
}

// Forget removes the files of a killed server, so that the next start is empty.
func (p *Process) Forget() {
	p.t.Helper()
	if err := os.RemoveAll(p.StoreDir()); err != nil {
		p.t.Fatal(err)
	}
}

// Freeze stops the process and waits until it has stopped. Connections stay open, but the server
// doesn't respond.
func (p *Process) Freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		p.t.Fatalf("the NATS server did not stop: %v", err)
	}
}

// HoldBack makes the server's replica of a stream lag. The replica still stores the entries of the Raft
// log and acknowledges them to the leader. It doesn't apply them to its copy of the stream, from which
// it serves readers. Meanwhile, the replica can't become the leader. HoldBack returns an error for the
// stream's leader, which can't be held back. Release or the end of the process ends the lag.
func (p *Process) HoldBack(stream string) error { return p.order(hold, stream) }

// Release ends the lag that HoldBack started.
func (p *Process) Release(stream string) error { return p.order(release, stream) }

func (p *Process) order(verb, stream string) error {
	if p.former != "" {
		return errors.New("a server of an earlier release takes no orders")
	}
	if _, err := fmt.Fprintln(p.orders, verb, stream); err != nil {
		return err
	}
	answer, err := p.answers.ReadString('\n')
	if err == nil && answer != done+"\n" {
		err = errors.New(strings.TrimSpace(answer))
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, stream, err)
	}
	return nil
}

// Thaw resumes a frozen process.
func (p *Process) Thaw() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

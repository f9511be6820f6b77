package torture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
)

// node is a forwarder with its proxies to the bus and to the API server. While it is wanted, it is
// restarted whenever it ends, as by a kubelet.
type node struct {
	*harness.Forwarder
	bus      faultproxy.Group
	api      *faultproxy.Proxy
	always   []string    // variables of every start
	rivalled func() bool // reports whether another forwarder runs or has run

	mu      sync.Mutex
	wanted  bool
	asked   bool // the process was asked to end
	armed   bool // the process was started with a failpoint
	killed  int  // number of ends by SIGKILL
	fenced  int  // number of ends because another writer took over
	returns int  // maximum number of restarts after such an end
	read    int  // length of the log at the latest start
	failure error
	keepers sync.WaitGroup
}

// start starts the process with additional variables. It must not be running.
func (n *node) start(more ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted = true
	return n.startLocked(more...)
}

// isWanted reports whether the process should run.
func (n *node) isWanted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wanted
}

// keep keeps the process running from now on, without a failpoint. A failpoint that has not fired
// could fire at any time: the API server deletes the namespaces of the previous seed in the
// background, and the forwarder publishes these deletes.
func (n *node) keep(ctx context.Context) error {
	n.mu.Lock()
	n.wanted, n.returns = true, math.MaxInt
	if !n.Running() {
		defer n.mu.Unlock()
		return n.startLocked()
	}
	armed := n.armed
	n.mu.Unlock()
	if armed {
		return n.terminate(ctx)
	}
	return nil
}

func (n *node) startLocked(more ...string) error {
	n.read = len(n.Log())
	if err := n.Start(append(more, n.always...)...); err != nil {
		return err
	}
	n.armed = len(more) > 0
	this, ended := n.Starts(), n.Ended()
	n.keepers.Go(func() {
		<-ended
		n.ended(this)
	})
	return nil
}

// ended starts the process again if it should run.
func (n *node) ended(which int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	signal, err := n.Failure()
	switch {
	case signal == syscall.SIGKILL:
		n.killed++
	case signal == syscall.SIGTERM && n.asked: // the signal arrived before the process installed its handler
	case err != nil && n.wasFenced():
		n.fenced++
		n.wanted = n.wanted && n.fenced <= n.returns
	case err != nil && n.failure == nil:
		n.failure = err
		n.wanted = false
	}
	n.asked = false
	if n.wanted && which == n.Starts() {
		n.failure = errors.Join(n.failure, n.startLocked())
	}
}

// fencedOff is the text that a forwarder logs after another forwarder took over its bus.
const fencedOff = "another writer took over"

// wasFenced reports whether the process ended because another forwarder took over.
func (n *node) wasFenced() bool { return n.rivalled() && strings.Contains(n.Log()[n.read:], fencedOff) }

// restart kills the process, if it runs, and starts it with additional variables.
func (n *node) restart(more ...string) error {
	n.kill()
	return n.start(more...)
}

// kill ends the process. It isn't started again.
func (n *node) kill() {
	n.mu.Lock()
	n.wanted = false
	n.mu.Unlock()
	n.Kill()
	n.keepers.Wait()
}

// stop asks the process to end. It isn't started again.
func (n *node) stop(ctx context.Context) error {
	n.mu.Lock()
	n.wanted, n.asked = false, n.Running()
	n.mu.Unlock()
	n.Signal(syscall.SIGCONT)
	if n.Ended() == nil {
		return nil
	}
	err := n.Stop(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	if signal, _ := n.Failure(); signal != 0 || n.wasFenced() { // a failpoint may end the process, or the signal before the process handles it
		return nil
	}
	return err
}

// terminate asks the process to end and waits for the end. Then the process is restarted.
func (n *node) terminate(ctx context.Context) error {
	n.mu.Lock()
	n.asked = n.Running()
	ended := n.Ended()
	n.mu.Unlock()
	if ended == nil {
		return nil
	}
	n.Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return errors.New("the forwarder does not end after SIGTERM")
	}
}

// state returns the number of kills so far, and an error if a process failed or its log shows a
// crash or a data race.
func (n *node) state() (killed int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	err = n.failure
	for _, sign := range []string{"DATA RACE", "panic: ", "fatal error: "} {
		if strings.Contains(n.Log(), sign) {
			err = errors.Join(err, fmt.Errorf("the forwarder's log has %q", sign))
		}
	}
	return n.killed, err
}

// count returns how often the process was started, and how often it was killed.
func (n *node) count() (starts, killed int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Starts(), n.killed
}

// writeKubeconfig writes the kubeconfig of a user that connects through a proxy.
func writeKubeconfig(cp *controlplane.ControlPlane, dir, address string) (string, error) {
	rc := cp.ConfigFor(reader)
	config := clientcmdapi.NewConfig()
	config.Clusters["torture"] = &clientcmdapi.Cluster{Server: "https://" + address, CertificateAuthorityData: rc.CAData}
	config.AuthInfos[reader] = &clientcmdapi.AuthInfo{Token: rc.BearerToken}
	config.Contexts["torture"] = &clientcmdapi.Context{Cluster: "torture", AuthInfo: reader}
	config.CurrentContext = "torture"
	file := filepath.Join(dir, "kubeconfig")
	return file, clientcmd.WriteToFile(*config, file)
}

// The intervals of a forwarder under torture. They are short here, but long by default to spare a
// broken bus.
const (
	ackTimeout   = 500 * time.Millisecond
	retryLongest = 500 * time.Millisecond
	drainTimeout = 2 * time.Second
)

func (w *world) newNode(n int) (*node, error) {
	dir := filepath.Join(w.dir, fmt.Sprintf("forwarder-%d", n))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	nd := &node{
		bus: w.bus.links(n), rivalled: w.twoNodes, returns: w.settings.kafka.returns,
		api: faultproxy.Start(w.t, strings.TrimPrefix(w.cp.Config().Host, "https://")),
	}
	kubeconfig, err := writeKubeconfig(w.cp, dir, nd.api.Addr())
	if err != nil {
		return nil, err
	}
	address, err := harness.FreePort()
	if err != nil {
		return nil, err
	}
	nd.Forwarder = harness.New(harness.Options{
		Binary: w.binary, Dir: dir, Address: address, Kubeconfig: kubeconfig,
		Cluster: clusterName, Set: w.environment(n),
	})
	nd.always = []string{"POD_NAMESPACE=torture", fmt.Sprintf("POD_NAME=forwarder-%d", n)}
	return nd, nil
}

// logLines is the number of log lines that a failing test prints.
const logLines = 40

// showLogs prints the ends of the forwarders' logs, without client-go's messages, and keeps the
// full logs.
func (w *world) showLogs() {
	kept, err := os.MkdirTemp("", "kuberelay-torture-logs-")
	if err != nil {
		w.t.Log(err)
		return
	}
	w.t.Logf("the forwarders' logs are kept in %s", kept)
	for n, nd := range w.nodes {
		if nd.Ended() == nil {
			continue
		}
		text := nd.Log()
		if err := os.WriteFile(filepath.Join(kept, fmt.Sprintf("forwarder-%d.log", n)), []byte(text), 0o600); err != nil {
			w.t.Log(err)
		}
		var lines []string
		for line := range strings.Lines(text) {
			if !strings.Contains(line, `"DEBUG+`) && !strings.Contains(line, `"reflector":`) {
				lines = append(lines, line)
			}
		}
		w.t.Logf("the log of forwarder %d ends with:\n%s", n, strings.Join(lines[max(0, len(lines)-logLines):], ""))
	}
}

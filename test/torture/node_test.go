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

// node is a forwarder with the proxies on its two sides. While it is wanted, it is
// started again whenever it ends, as a kubelet would.
type node struct {
	*harness.Forwarder
	bus, api *faultproxy.Proxy
	always   []string    // variables of every start
	rivalled func() bool // whether there is, or was, another forwarder

	mu      sync.Mutex
	wanted  bool
	asked   bool // to end
	armed   bool // started with a failpoint
	killed  int  // ends by kill -9
	fenced  int  // ends because another writer had taken over
	returns int  // how often it is started again after that
	read    int  // length of the log when the process was started
	failure error
	keepers sync.WaitGroup
}

// start starts the process with more variables. It must not be running.
func (n *node) start(more ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted = true
	return n.startLocked(more...)
}

// isWanted tells whether the process is to run.
func (n *node) isWanted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wanted
}

// keep runs the process from now on, whatever ended it before or will, and without a
// failpoint. One that has not fired could fire at any time: the API server deletes the
// namespaces of the seed before in the background, and the forwarder publishes these deletes.
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

// ended starts the process again if it is to run.
func (n *node) ended(which int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	signal, err := n.Failure()
	switch {
	case signal == syscall.SIGKILL:
		n.killed++
	case signal == syscall.SIGTERM && n.asked: // it came before the process could take it
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

// fencedOff is what a forwarder logs whose bus another has taken over.
const fencedOff = "another writer took over"

// wasFenced tells whether the process ended because another forwarder had taken over.
func (n *node) wasFenced() bool { return n.rivalled() && strings.Contains(n.Log()[n.read:], fencedOff) }

// restart kills the process, if it runs, and starts it with more variables.
func (n *node) restart(more ...string) error {
	n.kill()
	return n.start(more...)
}

// kill ends the process for good.
func (n *node) kill() {
	n.mu.Lock()
	n.wanted = false
	n.mu.Unlock()
	n.Kill()
	n.keepers.Wait()
}

// stop asks the process to end for good.
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
	if signal, _ := n.Failure(); signal != 0 || n.wasFenced() { // or by its failpoint, or before it could take ours
		return nil
	}
	return err
}

// terminate asks the process to end and waits for it; it is started again.
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

// state is what has become of the process so far.
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

// count tells how often the process was started, and how often killed.
func (n *node) count() (starts, killed int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Starts(), n.killed
}

// writeKubeconfig writes the kubeconfig of a user that goes through a proxy.
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

// The pace of a forwarder under torture: what takes long by default, so as not to
// wear out a broken bus, takes short.
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
		bus: w.bus.proxy(n), rivalled: w.twoNodes, returns: w.settings.kafka.returns,
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

// logLines is how much of a forwarder's log a failing test shows.
const logLines = 40

// showLogs shows the ends of the forwarders' logs, without what client-go says, and
// keeps the whole of them.
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

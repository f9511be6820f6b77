package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// Options say what Start starts. The zero value is etcd and an API server.
type Options struct {
	// Dir is where the control plane makes a folder of its own, which is
	// removed at its end. The default is the system's folder for such files.
	Dir string
	// ControllerManager starts kube-controller-manager, for what needs
	// controllers: Deployments that become Pods, namespaces that go away.
	ControllerManager bool
	// Kwok starts kwok, which makes nodes ready that a test or a demo creates,
	// and runs the Pods that are bound to them, without any machine.
	Kwok bool
	// Heartbeat is how often the nodes of kwok report that they live, with up to as much
	// again by chance. The default is kwok's own: ten minutes.
	Heartbeat time.Duration
	// Aggregated starts an aggregated API server with a storage of its own. The
	// cluster serves its resources from RegisterAggregated to UnregisterAggregated.
	Aggregated bool
	// Users are further users, with their groups. They may do what RBAC lets
	// them and their groups do, which at first is what every authenticated
	// user may. A service account's name,
	// system:serviceaccount:NAMESPACE:NAME, is as good as any.
	Users map[string][]string
	// APIServerFlags are added to the API server's, and win over them.
	APIServerFlags []string
	// EtcdFlags are added to etcd's, likewise: its quota is 2 GB unless raised.
	EtcdFlags []string
	// Log is told what takes long and what ends unasked. The default is the
	// standard error.
	Log io.Writer
}

// log returns Log or its default, safe for concurrent use.
func (o Options) log() io.Writer {
	if o.Log == nil {
		return os.Stderr
	}
	return &lockedWriter{w: o.Log}
}

// A ControlPlane is a running control plane. Its methods may be called
// concurrently.
type ControlPlane struct {
	dir                         string
	group                       *childprocess.Group
	etcdPort, peerPort, apiPort childprocess.Port
	tokens                      map[string]string
	ca                          []byte // the API server's own certificate; set before Start returns

	etcd, apiServer         *childprocess.Process
	controllerManager, kwok *childprocess.Process // nil if not wanted
	aggregated              *aggregated           // likewise

	mu    sync.Mutex
	added []*APIServer // by AddAPIServer

	log  io.Writer // safe for concurrent use
	stop func() error
}

// Start starts a control plane and returns when it is ready. It lives until
// Stop, or this process' end, whatever becomes of ctx. The binaries are built
// if need be, see Binaries. On an error nothing is left behind, and the error
// has the end of the log of the component that failed.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	paths, err := Binaries(ctx, opts)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(opts.Dir, "kuberelay-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	group, err := childprocess.NewGroup(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the control plane: %w", err), os.RemoveAll(dir))
	}
	cp := &ControlPlane{dir: dir, group: group, log: opts.log()}
	cp.stop = sync.OnceValue(cp.stopAll)
	if err := cp.configure(paths, opts); err != nil {
		return nil, errors.Join(fmt.Errorf("start the control plane: %w", err), cp.Stop())
	}
	if err := cp.startAll(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the control plane: %w", err), cp.Stop())
	}
	return cp, nil
}

// configure prepares all that the components need before they start.
func (cp *ControlPlane) configure(paths Paths, opts Options) error {
	for _, p := range []*childprocess.Port{&cp.etcdPort, &cp.peerPort, &cp.apiPort} {
		held, err := childprocess.HoldPort(childprocess.ReusePort) // etcd and the API server have flags for it
		if err != nil {
			return err
		}
		*p = held
	}
	if err := writeServiceAccountKey(cp.file("service-account.key")); err != nil {
		return err
	}
	users := map[string][]string{admin: {"system:masters"}}
	if _, taken := opts.Users[admin]; taken {
		return fmt.Errorf("user %q is the administrator: choose another name", admin)
	}
	maps.Copy(users, opts.Users)
	var err error
	if cp.tokens, err = writeTokens(cp.file("tokens.csv"), users); err != nil {
		return err
	}
	apiServerFlags := opts.APIServerFlags
	if opts.Aggregated {
		if err := cp.configureAggregated(paths); err != nil {
			return err
		}
		apiServerFlags = append(cp.aggregationFlags(), apiServerFlags...)
	}
	cp.etcd = cp.component("etcd", etcdArgs(paths.Etcd, cp.etcdDir(), cp.etcdPort, cp.peerPort, opts.EtcdFlags))
	cp.apiServer = cp.component("kube-apiserver", cp.apiServerArgs(paths.APIServer, apiServerFlags))
	if opts.ControllerManager {
		cp.controllerManager = cp.component("kube-controller-manager", cp.controllerManagerArgs(paths.ControllerManager))
	}
	if opts.Kwok {
		stages, err := cp.writeKwokStages(paths.KwokStages, opts.Heartbeat)
		if err != nil {
			return err
		}
		cp.kwok = cp.component("kwok", kwokArgs(paths.Kwok, stages, cp.Kubeconfig()))
	}
	return nil
}

func (cp *ControlPlane) component(name string, args []string) *childprocess.Process {
	return &childprocess.Process{
		Name: name, Args: args, Dir: cp.dir, LogFile: cp.file(name + ".log"), Group: cp.group, Told: cp.log,
	}
}

// startAll starts every component and waits for each to be ready.
func (cp *ControlPlane) startAll(ctx context.Context) error {
	if err := cp.StartEtcd(ctx); err != nil {
		return err
	}
	if err := cp.apiServer.Start(); err != nil {
		return err
	}
	if cp.ca == nil {
		if err := cp.apiServer.Await(ctx, cp.readCA); err != nil {
			return err
		}
		if err := cp.writeKubeconfigs(); err != nil {
			return err
		}
	}
	if err := cp.apiServer.Await(ctx, cp.apiServerReady); err != nil {
		return err
	}
	if err := cp.startAdded(ctx); err != nil {
		return err
	}
	if cp.aggregated != nil {
		if err := cp.StartAggregated(ctx); err != nil {
			return err
		}
	}
	if cp.controllerManager != nil {
		if err := cp.controllerManager.Start(); err != nil {
			return err
		}
	}
	if cp.kwok != nil {
		if err := cp.kwok.Start(); err != nil {
			return err
		}
	}
	if cp.controllerManager != nil {
		return cp.controllerManager.Await(ctx, cp.controllerManagerReady)
	}
	return nil
}

// Stop kills every component and removes the folder. It takes half a minute
// at most, mostly no time; only the first call does anything, and all return
// its error.
func (cp *ControlPlane) Stop() error { return cp.stop() }

func (cp *ControlPlane) stopAll() error {
	for _, p := range cp.processes() {
		p.Retire()
	}
	err := cp.group.Close()
	if err != nil {
		err = errors.Join(err, os.RemoveAll(cp.dir))
	}
	for _, p := range cp.processes() {
		err = errors.Join(err, p.Kill()) // it is dead, but may not be gone yet
	}
	for _, p := range cp.ports() {
		p.Release()
	}
	if err != nil {
		return fmt.Errorf("stop the control plane: %w", err)
	}
	return nil
}

// processes returns the components that are wanted, those first that need the others.
func (cp *ControlPlane) processes() []*childprocess.Process {
	var wanted []*childprocess.Process
	for _, p := range []*childprocess.Process{cp.kwok, cp.controllerManager} {
		if p != nil {
			wanted = append(wanted, p)
		}
	}
	if cp.aggregated != nil {
		wanted = append(wanted, cp.aggregated.server, cp.aggregated.etcd)
	}
	for _, added := range cp.addedServers() {
		wanted = append(wanted, added.Process)
	}
	for _, p := range []*childprocess.Process{cp.apiServer, cp.etcd} { // nil if configure failed
		if p != nil {
			wanted = append(wanted, p)
		}
	}
	return wanted
}

// ports returns the ports that are held. One that was not held is none to release.
func (cp *ControlPlane) ports() []childprocess.Port {
	held := []childprocess.Port{cp.etcdPort, cp.peerPort, cp.apiPort}
	if a := cp.aggregated; a != nil {
		held = append(held, a.etcdPort, a.peerPort, a.apiPort)
	}
	for _, added := range cp.addedServers() {
		held = append(held, added.port)
	}
	return held
}

// LogTail returns the last lines of every component's log, for a test that
// failed to show.
func (cp *ControlPlane) LogTail(lines int) string {
	var text bytes.Buffer
	for _, p := range cp.processes() {
		fmt.Fprintf(&text, "--- %s ---\n%s\n", p.LogFile, p.Tail(lines))
	}
	return text.String()
}

func (cp *ControlPlane) file(name string) string { return filepath.Join(cp.dir, name) }

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

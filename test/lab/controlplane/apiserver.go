package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

func (cp *ControlPlane) apiServerArgs(binary string, extra []string) []string {
	return append([]string{binary,
		"--etcd-servers=http://" + cp.etcdPort.Address(),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", cp.apiPort.Number),
		"--permit-port-sharing=true", // shares the held port
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // loopback addresses can't be endpoints
		"--cert-dir=" + cp.certDir(),
		"--service-account-key-file=" + cp.file("service-account.key"),
		"--service-account-signing-key-file=" + cp.file("service-account.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--token-auth-file=" + cp.file("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--disable-admission-plugins=ServiceAccount",
		"--allow-privileged=true",
		"--shutdown-watch-termination-grace-period=5s", // by default, open watches delay the shutdown by up to a minute
	}, extra...)
}

// Address returns the address that the API server listens on, as host:port.
func (cp *ControlPlane) Address() string { return cp.apiPort.Address() }

func (cp *ControlPlane) certDir() string { return cp.file("certs") }

// StartAPIServer starts a stopped or killed API server with the same port, certificates and flags, and
// waits until it is ready.
func (cp *ControlPlane) StartAPIServer(ctx context.Context) error {
	if err := cp.apiServer.Start(); err != nil {
		return err
	}
	return cp.apiServer.Await(ctx, cp.apiServerReady)
}

// StopAPIServer asks the API server to end, if it is running, and waits for its end. If ctx is
// done first, it kills the API server and returns the error of ctx.
func (cp *ControlPlane) StopAPIServer(ctx context.Context) error { return cp.apiServer.Stop(ctx) }

// KillAPIServer kills the API server with SIGKILL, if it is running.
func (cp *ControlPlane) KillAPIServer() error { return cp.apiServer.Kill() }

// PauseAPIServer freezes the API server until ResumeAPIServer. Connections stay open and new
// connections succeed, but the API server doesn't respond. If the API server isn't running,
// PauseAPIServer has no effect.
func (cp *ControlPlane) PauseAPIServer() error {
	if !cp.apiServer.Running() {
		return nil
	}
	return cp.apiServer.Freeze()
}

// ResumeAPIServer ends the effect of PauseAPIServer.
func (cp *ControlPlane) ResumeAPIServer() error {
	if !cp.apiServer.Running() {
		return nil
	}
	return cp.apiServer.Thaw()
}

// apiServerReady returns nil when the API server is ready and has created its namespaces.
func (cp *ControlPlane) apiServerReady(ctx context.Context) error {
	for _, path := range []string{"/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"} {
		if err := cp.get(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// get returns an error unless the API server responds to a GET of the path with status 200.
func (cp *ControlPlane) get(ctx context.Context, path string) error {
	return get(ctx, cp.Config(), path)
}

func get(ctx context.Context, config *rest.Config, path string) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	return fetch(ctx, client, http.MethodGet, config.Host+path, nil, nil)
}

// An APIServer is an additional API server of a control plane, with the same etcd, certificate and
// users. The methods of Process freeze it, kill it and start it again. Ready waits until it is ready.
type APIServer struct {
	*childprocess.Process
	cp   *ControlPlane
	port childprocess.Port
}

// AddAPIServer starts an additional API server and waits until it is ready. The server ends with the
// control plane. Its flags override those of the first server. For example,
// --runtime-config=apps/v1=false makes it serve fewer resources, and --etcd-servers can lead through a
// proxy to EtcdAddress, to make the server lag.
//
// A client that connects through a faultproxy.Proxy sees both servers at one address. The proxy's
// Direct method selects the server of each new connection.
func (cp *ControlPlane) AddAPIServer(ctx context.Context, flags ...string) (*APIServer, error) {
	port, err := childprocess.HoldPort(childprocess.ReusePort)
	if err != nil {
		return nil, fmt.Errorf("add an API server: %w", err)
	}
	flags = append([]string{fmt.Sprintf("--secure-port=%d", port.Number)}, flags...)
	cp.mu.Lock()
	name := fmt.Sprintf("kube-apiserver-%d", port.Number)
	added := &APIServer{cp: cp, port: port, Process: cp.component(name, override(cp.apiServer.Args, flags))}
	cp.added = append(cp.added, added)
	cp.mu.Unlock()
	if err := added.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("add an API server: %w", err), added.Remove())
	}
	if err := added.Ready(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("add an API server: %w", err), added.Remove())
	}
	return added, nil
}

// Address returns the address that the server listens on, as host:port.
func (a *APIServer) Address() string { return a.port.Address() }

// Config returns the control plane's Config with the address of this server.
func (a *APIServer) Config() *rest.Config {
	config := a.cp.Config()
	config.Host = "https://" + a.Address()
	return config
}

// Ready waits until the server is ready.
func (a *APIServer) Ready(ctx context.Context) error {
	return a.Await(ctx, func(ctx context.Context) error { return get(ctx, a.Config(), "/readyz") })
}

// Remove ends the server permanently: RestoreEtcd doesn't start it again.
func (a *APIServer) Remove() error {
	a.Retire()
	a.cp.mu.Lock()
	a.cp.added = slices.DeleteFunc(a.cp.added, func(other *APIServer) bool { return other == a })
	a.cp.mu.Unlock()
	if err := a.Kill(); err != nil {
		return fmt.Errorf("remove an API server: %w", err)
	}
	a.port.Release()
	return nil
}

func (cp *ControlPlane) addedServers() []*APIServer {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return slices.Clone(cp.added)
}

// startAdded starts the additional servers and waits until they are ready.
func (cp *ControlPlane) startAdded(ctx context.Context) error {
	for _, added := range cp.addedServers() {
		if err := added.Start(); err != nil {
			return err
		}
		if err := added.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// override returns the arguments followed by the flags. It removes each argument that the flags set
// again, because a list flag that is set twice has the values of both.
func override(args, flags []string) []string {
	name := func(arg string) string {
		name, _, _ := strings.Cut(arg, "=")
		return name
	}
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return slices.ContainsFunc(flags, func(flag string) bool { return name(flag) == name(arg) })
	})
	return append(args, flags...)
}

// readCA reads the certificate that the API server generated at its first start. It returns an error
// until the file is complete and the server uses the certificate.
func (cp *ControlPlane) readCA(ctx context.Context) (err error) {
	if cp.ca, err = os.ReadFile(filepath.Join(cp.certDir(), "apiserver.crt")); err != nil {
		return err
	}
	return cp.get(ctx, "/livez/ping")
}

// fetch sends an HTTP request with body, which may be nil, and passes the content of the response to
// read, unless read is nil. It returns an error for any status except 200.
func fetch(ctx context.Context, client *http.Client, method, url string, body io.Reader, read func([]byte) error) error {
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, url, response.Status, childprocess.LastLines(string(content), 5))
	}
	if read == nil {
		return nil
	}
	return read(content)
}

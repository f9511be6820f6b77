package controlplane

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/childprocess"
)

func (cp *ControlPlane) apiServerArgs(binary string, extra []string) []string {
	return append([]string{binary,
		"--etcd-servers=http://" + cp.etcdPort.Address(),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", cp.apiPort.Number),
		"--permit-port-sharing=true", // with our hold on the port
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // no endpoint may be a loopback address
		"--cert-dir=" + cp.certDir(),
		"--service-account-key-file=" + cp.file("service-account.key"),
		"--service-account-signing-key-file=" + cp.file("service-account.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--token-auth-file=" + cp.file("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--disable-admission-plugins=ServiceAccount",
		"--allow-privileged=true",
		"--shutdown-watch-termination-grace-period=5s", // else open watches hold it for a minute
	}, extra...)
}

func (cp *ControlPlane) certDir() string { return cp.file("certs") }

// StartAPIServer starts the API server after it was stopped or killed, with
// the same port, certificates and flags, and waits until it is ready.
func (cp *ControlPlane) StartAPIServer(ctx context.Context) error {
	if err := cp.apiServer.Start(); err != nil {
		return err
	}
	return cp.apiServer.Await(ctx, cp.apiServerReady)
}

// StopAPIServer asks the API server to end in order, if it is running, and
// waits for its end. When ctx is done before that, it is killed and the error
// is that of ctx.
func (cp *ControlPlane) StopAPIServer(ctx context.Context) error { return cp.apiServer.Stop(ctx) }

// KillAPIServer ends the API server with kill -9, if it is running.
func (cp *ControlPlane) KillAPIServer() error { return cp.apiServer.Kill() }

// PauseAPIServer makes the API server hang: connections stay open, and are
// made, but nothing answers until ResumeAPIServer. One that is not running stays so.
func (cp *ControlPlane) PauseAPIServer() error {
	if !cp.apiServer.Running() {
		return nil
	}
	return cp.apiServer.Freeze()
}

// ResumeAPIServer ends PauseAPIServer.
func (cp *ControlPlane) ResumeAPIServer() error {
	if !cp.apiServer.Running() {
		return nil
	}
	return cp.apiServer.Thaw()
}

// apiServerReady returns nil when the API server is ready and the namespaces
// are there that it makes by itself soon after.
func (cp *ControlPlane) apiServerReady(ctx context.Context) error {
	for _, path := range []string{"/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"} {
		if err := cp.get(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// get returns an error unless the API server has something at the path.
func (cp *ControlPlane) get(ctx context.Context, path string) error {
	client, err := rest.HTTPClientFor(cp.Config())
	if err != nil {
		return err
	}
	return fetch(ctx, client, http.MethodGet, "https://"+cp.apiPort.Address()+path, nil, nil)
}

// readCA keeps the certificate that the API server made for itself when it was
// first started, and returns nil when that is whole and the one it serves with.
func (cp *ControlPlane) readCA(ctx context.Context) (err error) {
	if cp.ca, err = os.ReadFile(filepath.Join(cp.certDir(), "apiserver.crt")); err != nil {
		return err
	}
	return cp.get(ctx, "/livez/ping")
}

// fetch sends body, if not nil, and hands the answer to read, if not nil. An
// answer that is not 200 is an error.
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

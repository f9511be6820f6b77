package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

func etcdArgs(binary, dir string, clientPort, peerPort childprocess.Port, extra []string) []string {
	client, peer := "http://"+clientPort.Address(), "http://"+peerPort.Address()
	return append([]string{binary,
		"--name=kuberelay",
		"--data-dir=" + dir,
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=kuberelay=" + peer,
		"--socket-reuse-port=true", // shares the held ports
		"--unsafe-no-fsync=true",
		"--heartbeat-interval=10", // ms; shortens the election at the start
		"--election-timeout=100",
	}, extra...)
}

func (cp *ControlPlane) etcdDir() string { return cp.file("etcd") }

// EtcdAddress returns the address where etcd serves clients without authentication, as host:port.
func (cp *ControlPlane) EtcdAddress() string { return cp.etcdPort.Address() }

// KillEtcd kills etcd with SIGKILL, if it is running.
func (cp *ControlPlane) KillEtcd() error { return cp.etcd.Kill() }

// StartEtcd starts a killed etcd with its port and data and waits until it serves requests. The API
// server needs a moment to reconnect.
func (cp *ControlPlane) StartEtcd(ctx context.Context) error {
	if err := cp.etcd.Start(); err != nil {
		return err
	}
	return cp.etcd.Await(ctx, etcdReady(cp.etcdPort))
}

// CompactEtcd removes all revisions before the current one. It doesn't affect the API server's watch
// cache: until the API server restarts, it serves watches from older resourceVersions. After the
// restart, it responds to them with 410 Gone.
func (cp *ControlPlane) CompactEtcd(ctx context.Context) error {
	revision, err := etcdRevision(ctx, cp.etcdPort)
	if err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	body := fmt.Sprintf(`{"revision": %q, "physical": true}`, revision)
	if err := askEtcd(ctx, cp.etcdPort, "/v3/kv/compaction", body, nil); err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

// DefragmentEtcd returns the space that CompactEtcd freed to the file system.
func (cp *ControlPlane) DefragmentEtcd(ctx context.Context) error {
	if err := askEtcd(ctx, cp.etcdPort, "/v3/maintenance/defragment", "{}", nil); err != nil {
		return fmt.Errorf("defragment etcd: %w", err)
	}
	return nil
}

// SnapshotEtcd copies the state of the cluster to the directory path, which must be empty or not exist.
// etcd is down for a moment. If the API server was running, it is ready again when SnapshotEtcd
// returns.
//
// SnapshotEtcd kills etcd with SIGKILL. The files are as good as after a clean shutdown, which would
// wait seconds for the API server's watches to end.
func (cp *ControlPlane) SnapshotEtcd(ctx context.Context, path string) error {
	if err := cp.etcd.Kill(); err != nil {
		return fmt.Errorf("snapshot etcd: %w", err)
	}
	err := os.CopyFS(path, os.DirFS(cp.etcdDir()))
	if err := errors.Join(err, cp.StartEtcd(ctx)); err != nil {
		return fmt.Errorf("snapshot etcd: %w", err)
	}
	if !cp.apiServer.Running() {
		return nil
	}
	return cp.apiServer.Await(ctx, cp.apiServerReady)
}

// RestoreEtcd returns the cluster to a state from SnapshotEtcd, like a restore of etcd from a
// backup. The resourceVersions decrease, and the API server assigns them again to other states.
// RestoreEtcd restarts all components and waits until the API server is ready.
func (cp *ControlPlane) RestoreEtcd(ctx context.Context, path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("restore etcd: %w", err)
	}
	for _, p := range cp.processes() {
		if err := p.Kill(); err != nil {
			return fmt.Errorf("restore etcd: %w", err)
		}
	}
	if err := os.RemoveAll(cp.etcdDir()); err != nil {
		return fmt.Errorf("restore etcd: %w", err)
	}
	if err := os.CopyFS(cp.etcdDir(), os.DirFS(path)); err != nil {
		return fmt.Errorf("restore etcd: %w", err)
	}
	if err := cp.startAll(ctx); err != nil {
		return fmt.Errorf("restore etcd: %w", err)
	}
	return nil
}

// etcdReady returns a check that etcd serves requests on the port.
func etcdReady(port childprocess.Port) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := etcdRevision(ctx, port)
		return err
	}
}

// etcdRevision returns the current revision, in decimal.
func etcdRevision(ctx context.Context, port childprocess.Port) (string, error) {
	var answer struct {
		Header struct{ Revision string }
	}
	const firstKey = `{"key": "AA==", "count_only": true}`
	if err := askEtcd(ctx, port, "/v3/kv/range", firstKey, &answer); err != nil {
		return "", err
	}
	return answer.Header.Revision, nil
}

// askEtcd calls etcd's gRPC API through its JSON gateway. The requests are linearizable, so a response
// means that etcd is serving.
func askEtcd(ctx context.Context, port childprocess.Port, path, body string, answer any) error {
	read := func(content []byte) error {
		if answer == nil {
			return nil
		}
		return json.Unmarshal(content, answer)
	}
	return fetch(ctx, http.DefaultClient, http.MethodPost, "http://"+port.Address()+path, bytes.NewBufferString(body), read)
}

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
		"--socket-reuse-port=true", // with our hold on the ports
		"--unsafe-no-fsync=true",
		"--heartbeat-interval=10", // ms; it elects itself the sooner
		"--election-timeout=100",
	}, extra...)
}

func (cp *ControlPlane) etcdDir() string { return cp.file("etcd") }

// EtcdAddress is where etcd serves without authentication, as host:port.
func (cp *ControlPlane) EtcdAddress() string { return cp.etcdPort.Address() }

// KillEtcd ends etcd with kill -9, if it is running.
func (cp *ControlPlane) KillEtcd() error { return cp.etcd.Kill() }

// StartEtcd starts etcd after it was killed, with its port and data, and waits
// until it serves. The API server needs a moment more to find it again.
func (cp *ControlPlane) StartEtcd(ctx context.Context) error {
	if err := cp.etcd.Start(); err != nil {
		return err
	}
	return cp.etcd.Await(ctx, etcdReady(cp.etcdPort))
}

// CompactEtcd makes etcd forget all but the present state. The API server's
// watch cache does not: it goes on serving a watch from an older
// resourceVersion until it is started again, and only then answers it with
// 410 Gone.
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

// DefragmentEtcd gives the file system what CompactEtcd has freed.
func (cp *ControlPlane) DefragmentEtcd(ctx context.Context) error {
	if err := askEtcd(ctx, cp.etcdPort, "/v3/maintenance/defragment", "{}", nil); err != nil {
		return fmt.Errorf("defragment etcd: %w", err)
	}
	return nil
}

// SnapshotEtcd copies the cluster's whole state to the folder path, which must
// not exist or be empty. etcd is down for a moment; the API server is ready
// again when SnapshotEtcd returns, if it was running.
//
// etcd is killed for it: its files are as good after that as after an orderly
// end, which would wait seconds for the API server's watches.
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

// RestoreEtcd takes the cluster back to a state that SnapshotEtcd made, as
// restoring etcd from a backup does: resourceVersions go back, and are given
// out again for other states. All components are started again; when it
// returns the API server is ready.
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

// etcdReady returns a check that the etcd of the port serves.
func etcdReady(port childprocess.Port) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := etcdRevision(ctx, port)
		return err
	}
}

// etcdRevision returns the revision of the present state, in decimal.
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

// askEtcd calls etcd's gRPC API through its JSON gateway. It is a linearizable
// call: an answer means that etcd serves.
func askEtcd(ctx context.Context, port childprocess.Port, path, body string, answer any) error {
	read := func(content []byte) error {
		if answer == nil {
			return nil
		}
		return json.Unmarshal(content, answer)
	}
	return fetch(ctx, http.DefaultClient, http.MethodPost, "http://"+port.Address()+path, bytes.NewBufferString(body), read)
}

package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// aggregatedArtifact is Kubernetes' sample of an aggregated API server. Its libraries have the same
// versions as the control plane's libraries, so the Go build cache can serve both builds.
var aggregatedArtifact = artifact{
	name:   "sample-apiserver",
	source: "sampleapiserver",
	args:   func(string) ([]string, error) { return []string{"-ldflags=-s -w", "k8s.io/sample-apiserver"}, nil },
}

const (
	// AggregatedGroup and AggregatedVersion identify the API that the aggregated API server serves. Its
	// resources are flunders, which are namespaced, and fischers, which aren't. Objects don't need a
	// spec.
	AggregatedGroup   = "wardle.example.com"
	AggregatedVersion = "v1alpha1"
	// AggregatedAPIService is the name of the APIService that RegisterAggregated creates.
	AggregatedAPIService = AggregatedVersion + "." + AggregatedGroup

	aggregatedPath    = "/apis/" + AggregatedGroup + "/" + AggregatedVersion
	aggregatedService = "aggregated" // in namespace default
)

var (
	services    = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// aggregated is an aggregated API server with its own etcd.
type aggregated struct {
	etcd, server                *childprocess.Process
	etcdPort, peerPort, apiPort childprocess.Port
	etcdDir                     string
}

// aggregationFlags returns the flags that let the API server authenticate itself and its users to
// aggregated API servers.
func (cp *ControlPlane) aggregationFlags() []string {
	return []string{
		"--requestheader-client-ca-file=" + cp.file("front-proxy.crt"), // self-signed
		"--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + cp.file("front-proxy.crt"),
		"--proxy-client-key-file=" + cp.file("front-proxy.key"),
	}
}

// configureAggregated prepares the aggregated API server and its etcd.
func (cp *ControlPlane) configureAggregated(paths Paths) error {
	if err := writeFrontProxyCertificate(cp.file("front-proxy.crt"), cp.file("front-proxy.key")); err != nil {
		return err
	}
	a := &aggregated{etcdDir: cp.file("aggregated-etcd")}
	for _, p := range []*childprocess.Port{&a.etcdPort, &a.peerPort, &a.apiPort} {
		held, err := childprocess.HoldPort(childprocess.ReusePort)
		if err != nil {
			return err
		}
		*p = held
	}
	a.etcd = cp.component("aggregated-etcd", etcdArgs(paths.Etcd, a.etcdDir, a.etcdPort, a.peerPort, nil))
	a.server = cp.component("sample-apiserver", []string{paths.Aggregated,
		"--etcd-servers=http://" + a.etcdPort.Address(),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", a.apiPort.Number),
		"--permit-port-sharing=true", // shares the held port
		"--cert-dir=" + cp.file("aggregated-certs"),
		"--kubeconfig=" + cp.Kubeconfig(),
		"--authentication-kubeconfig=" + cp.Kubeconfig(),
		"--authorization-kubeconfig=" + cp.Kubeconfig(),
		"--enable-priority-and-fairness=false",
	})
	cp.aggregated = a
	return nil
}

// StartAggregated starts the aggregated API server and its etcd, unless they are running, and waits
// until the server is ready.
func (cp *ControlPlane) StartAggregated(ctx context.Context) error {
	a := cp.aggregated
	if !a.etcd.Running() {
		if err := a.etcd.Start(); err != nil {
			return err
		}
		if err := a.etcd.Await(ctx, etcdReady(a.etcdPort)); err != nil {
			return err
		}
	}
	if !a.server.Running() {
		if err := a.server.Start(); err != nil {
			return err
		}
	}
	// The aggregated API server has its own certificate, and serves /readyz without authentication.
	config := cp.Config()
	config.Host, config.BearerToken = "https://"+a.apiPort.Address(), ""
	config.CAData, config.Insecure = nil, true
	return a.server.Await(ctx, func(ctx context.Context) error { return get(ctx, config, "/readyz") })
}

// KillAggregated kills the aggregated API server with SIGKILL, if it is running. Its APIService stays
// and soon becomes unavailable.
func (cp *ControlPlane) KillAggregated() error { return cp.aggregated.server.Kill() }

// ReplaceAggregatedStorage restarts the aggregated API server with empty storage. Its resourceVersions
// begin at 1 again.
func (cp *ControlPlane) ReplaceAggregatedStorage(ctx context.Context) error {
	return cp.changeAggregatedStorage(ctx, os.RemoveAll)
}

// SnapshotAggregated copies the storage of the aggregated API server to the directory path, which must be
// empty or not exist. It restarts the server.
func (cp *ControlPlane) SnapshotAggregated(ctx context.Context, path string) error {
	return cp.changeAggregatedStorage(ctx, func(dir string) error { return os.CopyFS(path, os.DirFS(dir)) })
}

// RestoreAggregated restarts the aggregated API server with the storage that SnapshotAggregated copied
// to path.
func (cp *ControlPlane) RestoreAggregated(ctx context.Context, path string) error {
	return cp.changeAggregatedStorage(ctx, func(dir string) error {
		return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(path)))
	})
}

func (cp *ControlPlane) changeAggregatedStorage(ctx context.Context, change func(dir string) error) error {
	a := cp.aggregated
	err := errors.Join(a.server.Kill(), a.etcd.Kill())
	if err == nil {
		err = errors.Join(change(a.etcdDir), cp.StartAggregated(ctx))
	}
	if err != nil {
		return fmt.Errorf("change the aggregated API server's storage: %w", err)
	}
	return nil
}

// RegisterAggregated registers the aggregated API server with the cluster and waits until the cluster
// serves its resources. A repeated call isn't an error.
func (cp *ControlPlane) RegisterAggregated(ctx context.Context) error {
	client, err := dynamic.NewForConfig(cp.Config())
	if err != nil {
		return err
	}
	// Only a Service of type ExternalName can refer to a loopback address.
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": aggregatedService},
		"spec":     map[string]any{"type": "ExternalName", "externalName": "localhost"},
	}}
	apiService := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": AggregatedAPIService},
		"spec": map[string]any{
			"group": AggregatedGroup, "version": AggregatedVersion,
			"groupPriorityMinimum": int64(1000), "versionPriority": int64(15),
			"insecureSkipTLSVerify": true,
			"service": map[string]any{
				"namespace": "default", "name": aggregatedService, "port": int64(cp.aggregated.apiPort.Number),
			},
		},
	}}
	_, err = client.Resource(services).Namespace("default").Create(ctx, service, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = client.Resource(apiServices).Create(ctx, apiService, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register the aggregated API server: %w", err)
	}
	return cp.AwaitAggregated(ctx)
}

// AwaitAggregated waits until the cluster serves the resources of the aggregated API server.
func (cp *ControlPlane) AwaitAggregated(ctx context.Context) error {
	return cp.apiServer.Await(ctx, func(ctx context.Context) error {
		return errors.Join(cp.get(ctx, aggregatedPath), cp.get(ctx, aggregatedPath+"/flunders"))
	})
}

// UnregisterAggregated removes the APIService. The aggregated API server keeps running, with its
// objects.
func (cp *ControlPlane) UnregisterAggregated(ctx context.Context) error {
	client, err := dynamic.NewForConfig(cp.Config())
	if err != nil {
		return err
	}
	err = client.Resource(apiServices).Delete(ctx, AggregatedAPIService, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("unregister the aggregated API server: %w", err)
	}
	return nil
}

// writeFrontProxyCertificate creates the self-signed certificate that the API server presents to
// aggregated API servers.
func writeFrontProxyCertificate(certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "front-proxy"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600)
}

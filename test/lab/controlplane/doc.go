// Package controlplane starts a real Kubernetes control plane for the demo, the tests and the
// benchmarks. Its components are processes of the current user that listen on free ports of the
// loopback interface. The control plane consists of etcd and kube-apiserver. On request, the package
// adds kube-controller-manager, kwok, additional API servers and an aggregated API server. It needs
// neither Docker nor root.
//
// If KUBEBUILDER_ASSETS is set, the binaries come from that directory. Otherwise they are built from their
// Go modules (hack/controlplane) on first use, which takes minutes, and kept in the user's cache
// directory.
//
// It guarantees:
//
//   - When Start returns, the API server is ready, including RBAC, and the namespaces default
//     and kube-system exist.
//   - The API server and etcd keep their ports, certificates and data when they are killed and
//     started again. No other process receives the ports while the control plane exists.
//   - Stop kills every process and removes the directory. If this process ends without Stop, even
//     by SIGKILL, a reaper does the same.
//
// It doesn't guarantee durability or security: etcd writes without fsync and listens on the loopback
// interface without authentication. Pods don't run. kwok only simulates them. The ServiceAccount
// admission plugin is off, so that a pod can be created in a new namespace at once.
//
// Tests use package controlplanetest.
package controlplane

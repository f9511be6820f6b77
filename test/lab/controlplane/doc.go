// Package controlplane starts a real Kubernetes control plane, etcd,
// kube-apiserver and if wanted kube-controller-manager, kwok, more API servers and
// an aggregated one, as processes of the present user on free ports of the loopback
// interface, for the demo, the tests and the benchmarks. It needs no Docker and no
// root.
//
// The binaries come from KUBEBUILDER_ASSETS where that is set. Otherwise they
// are built from their Go modules (hack/controlplane) on first use, which takes
// some minutes, and kept in the user's cache folder.
//
// What it guarantees:
//
//   - Start returns when the API server is ready, RBAC included, and the
//     namespaces default and kube-system exist.
//   - The API server and etcd keep their ports, certificates and data when they
//     are killed and started again: the ports are held for as long as the
//     control plane lives.
//   - Every process is killed and the folder removed by Stop, and by a reaper
//     of its own when this process ends without Stop, even by kill -9.
//
// What it does not: etcd writes without fsync and listens without
// authentication on the loopback interface, so nothing that is secret or has
// to last belongs in it. Pods run only in kwok's pretence. Admission of service
// accounts is off, so that a pod can be created at once in a new namespace.
//
// Tests use package controlplanetest.
package controlplane

package controlplane

import "context"

func (cp *ControlPlane) controllerManagerArgs(binary string) []string {
	return []string{binary,
		"--kubeconfig=" + cp.Kubeconfig(),
		"--authentication-kubeconfig=" + cp.Kubeconfig(),
		"--authorization-kubeconfig=" + cp.Kubeconfig(),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + cp.file("service-account.key"),
		"--root-ca-file=" + cp.file("certs/apiserver.crt"),
		"--secure-port=0", // it doesn't need to serve
		"--leader-elect=false",
		"--kube-api-qps=1000", // the default limit delays the start of the controllers by seconds
		"--kube-api-burst=1000",
	}
}

// controllerManagerReady returns nil when the controllers are active.
func (cp *ControlPlane) controllerManagerReady(ctx context.Context) error {
	return cp.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
}

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuberelay/kuberelay/internal/config"
)

// kubeConfig says where the API server is and who we are: by KUBECONFIG, the
// user's kubeconfig, or, in a pod, its service account.
func kubeConfig(cfg config.Config, command string) (*rest.Config, error) {
	if err := checkKubeconfig(os.Getenv(clientcmd.RecommendedConfigPathEnvVar)); err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	kube, err := loadedKubeconfig().ClientConfig()
	if err != nil {
		if clientcmd.IsEmptyConfig(err) {
			err = errors.New("no cluster is configured: set KUBECONFIG to a kubeconfig file, or run in a pod")
		}
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	kube.QPS, kube.Burst = float32(cfg.Watch.QPS), cfg.Watch.Burst
	kube.UserAgent = "kuberelay-" + command + "/" + version
	return kube, nil
}

// kubeNamespace is the namespace of the kubeconfig's context, or of the pod.
func kubeNamespace() (string, error) {
	namespace, _, err := loadedKubeconfig().Namespace()
	return namespace, err
}

func loadedKubeconfig() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{})
}

// checkKubeconfig finds what client-go passes over in silence: files that are
// named and are not there. With several, one is enough, as for kubectl.
func checkKubeconfig(paths string) error {
	if paths == "" {
		return nil
	}
	for _, path := range filepath.SplitList(paths) {
		if _, err := os.Stat(path); path != "" && err == nil {
			return nil
		}
	}
	return fmt.Errorf("KUBECONFIG=%q: no such file; name a kubeconfig, or unset it to use ~/.kube/config or a pod's service account",
		strings.TrimSpace(paths))
}

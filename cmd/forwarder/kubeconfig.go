package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/credential"
)

// kubeConfig says where the API server is and who we are: by KUBECONFIG, the
// user's kubeconfig, or, in a pod, its service account.
func kubeConfig(cfg config.Config, command string, log *slog.Logger) (*rest.Config, error) {
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
	return kube, followToken(kube, log)
}

// followToken has every request bear the token that its file holds at that moment.
// Client-go would read it again at the first request after 50 s; where the next one is
// the poll of discovery, that makes a token a minute and a half old.
func followToken(kube *rest.Config, log *slog.Logger) error {
	if kube.BearerTokenFile == "" {
		return nil
	}
	path := kube.BearerTokenFile
	token, err := credential.NewFile("the service account's token", log, func() (string, error) { return credential.Secret(path) })
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	kube.BearerToken, kube.BearerTokenFile = "", ""
	kube.Wrap(func(rt http.RoundTripper) http.RoundTripper { return bearer{token, rt} })
	return nil
}

// bearer adds the token to requests.
type bearer struct {
	token *credential.File[string]
	inner http.RoundTripper
}

// RoundTrip makes one request.
func (b bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(b.token.Get()))
	return b.inner.RoundTrip(request)
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

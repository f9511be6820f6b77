package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/credential"
)

// kubeConfig returns the address of the API server and the credentials: from KUBECONFIG, the
// user's kubeconfig, or, in a pod, the service account.
func kubeConfig(cfg config.Config, command string, log *slog.Logger) (*rest.Config, error) {
	kube, err := loadKubeConfig(cfg, command)
	if err != nil {
		return nil, err
	}
	return kube, followToken(kube, log)
}

// loadKubeConfig is kubeConfig with a token that is not followed.
func loadKubeConfig(cfg config.Config, command string) (*rest.Config, error) {
	if err := checkKubeconfig(os.Getenv(clientcmd.RecommendedConfigPathEnvVar)); err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	kube, err := loadedKubeconfig().ClientConfig()
	switch {
	case err == nil:
		err = hidePassword(kube)
	case clientcmd.IsEmptyConfig(err):
		err = errors.New("no cluster is configured: set KUBECONFIG to a kubeconfig file, or run in a pod")
	case strings.Contains(err.Error(), "proxy-url"): // client-go quotes it, with its password
		err = errors.New("proxy-url in the kubeconfig is not a valid URL: correct it; write special characters of a password as %XX")
	}
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	kube.QPS, kube.Burst = float32(cfg.Watch.QPS), cfg.Watch.Burst
	kube.UserAgent = "kuberelay-" + command + "/" + version
	return kube, nil
}

// hidePassword moves a user name and a password out of the URL of the API server, which logs and
// errors show.
func hidePassword(kube *rest.Config) error {
	if !strings.Contains(kube.Host, "@") {
		return nil
	}
	u, err := url.Parse(kube.Host)
	if err != nil {
		return errors.New("server in the kubeconfig is not a valid URL: correct it; write special characters of a password as %XX")
	}
	// Other credentials take precedence, as in package net/http.
	if password, ok := u.User.Password(); ok && kube.BearerToken == "" && kube.BearerTokenFile == "" && kube.Username == "" && kube.ExecProvider == nil {
		kube.Username, kube.Password = u.User.Username(), password
	}
	u.User = nil
	kube.Host = u.String()
	return nil
}

// followToken sends with every request the token that the file has at that moment. client-go
// reads the file again only at the first request after 50 s. If that is the next poll of
// discovery, the token is a minute and a half old.
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

// RoundTrip sends a request with the token.
func (b bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(b.token.Get()))
	return b.inner.RoundTrip(request)
}

// kubeNamespace returns the namespace of the kubeconfig's context, or of the pod.
func kubeNamespace() (string, error) {
	namespace, _, err := loadedKubeconfig().Namespace()
	return namespace, err
}

func loadedKubeconfig() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{})
}

// checkKubeconfig returns an error if none of the files in KUBECONFIG exists. client-go ignores
// missing files silently. One of several is enough, as for kubectl.
func checkKubeconfig(paths string) error {
	if paths == "" {
		return nil
	}
	for _, path := range filepath.SplitList(paths) {
		if _, err := os.Stat(path); path != "" && err == nil {
			return nil
		}
	}
	if strings.ContainsAny(paths, "\n{") { // the content of a kubeconfig, with its credentials
		return errors.New("KUBECONFIG is not the path of a file; write the content to a file, and name that file")
	}
	return fmt.Errorf("KUBECONFIG=%q: no such file; name a kubeconfig, or unset it to use ~/.kube/config or a pod's service account",
		strings.TrimSpace(paths))
}

// Package kubeconfig finds the API server that the settings name, and the credentials for it.
//
// The API server comes from KUBECONFIG, from the user's default kubeconfig, or, in a pod, from the service
// account. If the settings have a source of several clusters, they also name one cluster of the source, and
// the API server is that cluster's. No error and no address contains a password from the kubeconfig. The
// package connects only to the management cluster of Cluster API. It does not know whether a server accepts
// the credentials.
package kubeconfig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/fleet/source"
)

// Finder finds client configurations.
type Finder struct {
	Settings  config.Config
	UserAgent string
	Logger    *slog.Logger
}

// Config returns the client configuration for the cluster of the settings. A request to the
// management cluster ends when ctx ends.
func (f Finder) Config(ctx context.Context) (*rest.Config, error) {
	kube, err := f.Load(ctx)
	if err != nil {
		return nil, err
	}
	return kube, FollowToken(kube, f.Logger)
}

// Load is like [Finder.Config], but does not apply [FollowToken] to the cluster of the kubeconfig or of the
// pod. The configuration for a cluster of a source already follows its token.
func (f Finder) Load(ctx context.Context) (*rest.Config, error) {
	if f.Settings.Fleet.Source() != "" {
		f.Logger = slog.New(slog.DiscardHandler)
		return f.member(ctx)
	}
	return f.loadHome()
}

// Home returns the client configuration for the cluster of the kubeconfig or of the pod, even if the
// settings have a source of several clusters.
func (f Finder) Home() (*rest.Config, error) {
	kube, err := f.loadHome()
	if err != nil {
		return nil, err
	}
	return kube, FollowToken(kube, f.Logger)
}

func (f Finder) loadHome() (*rest.Config, error) {
	if err := checkPaths(os.Getenv(clientcmd.RecommendedConfigPathEnvVar)); err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	kube, err := loader().ClientConfig()
	switch {
	case err == nil:
		err = hidePassword(kube)
	case clientcmd.IsEmptyConfig(err):
		err = noCluster()
	case strings.Contains(err.Error(), "proxy-url"): // client-go's error has the URL with its password
		err = errors.New("proxy-url in the kubeconfig is not a valid URL: correct it, and percent-encode special characters in the password")
	}
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	f.identify(kube)
	return kube, nil
}

// noCluster returns an error that says why there is no cluster.
func noCluster() error {
	if all, err := loader().RawConfig(); err == nil && len(all.Clusters) > 0 {
		return errors.New("the kubeconfig has clusters, but no current context that names one: choose a context with kubectl config use-context NAME")
	}
	return errors.New("no cluster is configured: set KUBECONFIG to a kubeconfig file, or run in a pod with the token of a service account")
}

// identify sets the rate limits and the user agent of the clients.
func (f Finder) identify(kube *rest.Config) {
	kube.QPS, kube.Burst = float32(f.Settings.Watch.QPS), f.Settings.Watch.Burst
	kube.UserAgent = f.UserAgent
}

// hidePassword moves a user name and a password out of the URL of the API server, because logs
// and errors show the URL.
func hidePassword(kube *rest.Config) error {
	if !strings.Contains(kube.Host, "@") {
		return nil
	}
	u, err := url.Parse(kube.Host)
	if err != nil {
		return errors.New("server in the kubeconfig is not a valid URL: correct it, and percent-encode special characters in the password")
	}
	// Other credentials take precedence, as in package net/http.
	if password, ok := u.User.Password(); ok && kube.BearerToken == "" && kube.BearerTokenFile == "" && kube.Username == "" && kube.ExecProvider == nil {
		kube.Username, kube.Password = u.User.Username(), password
	}
	u.User = nil
	kube.Host = u.String()
	return nil
}

// Namespace returns the namespace of the kubeconfig's context, or of the pod.
func Namespace() (string, error) {
	namespace, _, err := loader().Namespace()
	return namespace, err
}

func loader() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{})
}

// checkPaths returns an error if none of the files in KUBECONFIG exists, because client-go silently
// ignores missing files. As with kubectl, one existing file is enough.
func checkPaths(paths string) error {
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

// Source returns the source that lists the clusters of the settings.
func (f Finder) Source() (source.Source, error) {
	return source.New(source.Config{
		Settings: f.Settings.Fleet,
		Complete: func(kube *rest.Config) error {
			if err := hidePassword(kube); err != nil {
				return err
			}
			f.identify(kube)
			return FollowToken(kube, f.Logger)
		},
		Home: func() (*rest.Config, string, error) {
			kube, err := f.Home()
			if err != nil {
				return nil, "", err
			}
			namespace, err := Namespace()
			return kube, namespace, err
		},
	})
}

// member returns the client configuration for the cluster of the source that the settings name.
func (f Finder) member(ctx context.Context) (*rest.Config, error) {
	name := f.Settings.Event.ClusterName
	if name == "" {
		return nil, fmt.Errorf("%[1]s names several clusters, but this command needs one: use --cluster if the command has that flag, or unset %[1]s and set KUBECONFIG and KUBERELAY_CLUSTER_NAME", f.Settings.Fleet.Source())
	}
	all, err := f.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	c, err := source.Find(all, name)
	return c.Kube, err
}

// Clusters returns the clusters of the source.
func (f Finder) Clusters(ctx context.Context) ([]source.Cluster, error) {
	from, err := f.Source()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	return from.Read(ctx)
}

// sourceTimeout limits a read of the source. With Cluster API, the read is a request to the management
// cluster.
const sourceTimeout = 30 * time.Second

// Package source finds the clusters of a forwarder of several clusters: the contexts of a
// kubeconfig, a folder of kubeconfig files, or the Cluster objects of Cluster API with their
// kubeconfig Secrets.
//
// It guarantees:
//
//   - A cluster that cannot be used, because of its name or of its kubeconfig, has an error of its
//     own, and affects no other cluster. A source that cannot be read at all is not a source without
//     clusters: [Source.Watch] then reports nothing new.
//   - Two clusters never have the same name.
//   - No error has the content of a kubeconfig.
//   - The kubeconfig in a Secret of Cluster API can neither start a program nor read a file of this
//     machine: whoever may write the Secret need not be the operator of the forwarder.
//
// It does not connect to the clusters that it finds, and does not know whether a server accepts
// their credentials.
package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/config"
)

// Cluster is one cluster. Either Err is set, or the other fields are.
type Cluster struct {
	Name      string
	Kube      *rest.Config
	Namespace string            // of the context in the kubeconfig
	Digest    [sha256.Size]byte // of the kubeconfig: another one is another cluster, or other credentials
	Err       error             // why the cluster cannot be used
}

// Source finds clusters.
type Source interface {
	// Read returns the clusters, ordered by name.
	Read(ctx context.Context) ([]Cluster, error)
	// Watch calls found with all clusters at once and after each change, and failed with the errors of
	// the source, nil when it is well again. It blocks until ctx ends. It calls nothing concurrently.
	Watch(ctx context.Context, found func([]Cluster), failed func(error))
}

// Config configures a source.
type Config struct {
	Settings config.Fleet
	// Complete completes the configuration of a client that was read from a kubeconfig.
	Complete func(*rest.Config) error
	// Home returns the configuration of the clients for the cluster with the Cluster objects, and its
	// namespace. Only Cluster API needs it.
	Home   func() (*rest.Config, string, error)
	Logger *slog.Logger
}

// New returns the source in the settings.
func New(c Config) (Source, error) {
	switch s := c.Settings; {
	case len(s.Contexts) > 0:
		return polled{c.contexts}, nil
	case s.Dir != "":
		return polled{c.folder}, nil
	case len(s.ClusterAPI) > 0:
		return newClusterAPI(c)
	}
	return nil, errors.New("no source of clusters is configured")
}

// poll is the interval at which files are read again. It is the time that a change takes, because
// notifications of a file system miss symbolic links to another folder, which is how kubelet
// updates a volume.
const poll = 2 * time.Second

// polled is a source of files.
type polled struct {
	read func() ([]Cluster, error)
}

// Read implements [Source].
func (p polled) Read(context.Context) ([]Cluster, error) {
	all, err := p.read()
	return unique(all), err
}

// Watch implements [Source].
func (p polled) Watch(ctx context.Context, found func([]Cluster), failed func(error)) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		all, err := p.Read(ctx)
		if failed(err); err == nil {
			found(all)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// unique orders clusters by name. Several of one name become one that cannot be used, and so does
// one whose name no bus can have.
func unique(all []Cluster) (distinct []Cluster) {
	slices.SortStableFunc(all, func(a, b Cluster) int { return cmp.Compare(a.Name, b.Name) })
	for _, c := range all {
		last := len(distinct) - 1
		switch {
		case last >= 0 && distinct[last].Name == c.Name:
			distinct[last] = Cluster{Name: c.Name, Err: errors.New("several clusters of the source have this name; rename all but one")}
		case !config.IsClusterName(c.Name):
			distinct = append(distinct, Cluster{Name: c.Name, Err: errors.New("not the name of a cluster; use letters, digits, . _ and -, with a letter or digit first, at most 253")})
		default:
			distinct = append(distinct, c)
		}
	}
	return distinct
}

// Find returns the cluster with a name. Its error has the names of the others.
func Find(all []Cluster, name string) (Cluster, error) {
	var names []string
	for _, c := range all {
		if c.Name == name && c.Err != nil {
			return c, fmt.Errorf("cluster %s: %w", name, c.Err)
		}
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return Cluster{}, fmt.Errorf("the source has no cluster %q, only %s", name, cmp.Or(strings.Join(names, ", "), "none"))
}

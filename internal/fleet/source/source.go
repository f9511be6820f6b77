// Package source finds the clusters that one forwarder copies: the contexts of a kubeconfig, a
// directory of kubeconfig files, or the Cluster objects of Cluster API with their kubeconfig Secrets.
//
// The package guarantees:
//
//   - A cluster that cannot be used, because of its name or its kubeconfig, has its own error, and
//     affects no other cluster. A source that cannot be read does not count as a source without
//     clusters. [Source.Watch] reports only the error, and the clusters stay.
//   - Two clusters never have the same name.
//   - No error contains any part of a kubeconfig.
//   - The kubeconfig in a Secret of Cluster API can neither start a program nor read a file of this
//     machine, because the person who writes the Secret might not operate the forwarder.
//
// The package does not connect to the clusters that it finds, and does not know whether a server
// accepts their credentials.
package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/credential"
)

// Cluster is one cluster. If Err is set, the cluster cannot be used, and only Name is set too.
type Cluster struct {
	Name      string
	Kube      *rest.Config
	Namespace string            // of the context in the kubeconfig
	Digest    [sha256.Size]byte // of the kubeconfig; it differs for another server or other credentials
	Err       error             // why the cluster cannot be used
}

// Source finds clusters.
type Source interface {
	// Read returns the clusters, ordered by name.
	Read(ctx context.Context) ([]Cluster, error)
	// Watch calls found with all clusters: first when it has read them, and then at least after each
	// change. It calls failed with each error of the source, and with nil when the source works. It
	// blocks until ctx ends. It makes no concurrent calls.
	Watch(ctx context.Context, found func([]Cluster), failed func(error))
}

// Config configures a source.
type Config struct {
	Settings config.Fleet
	// Complete completes the configuration of a client that was read from a kubeconfig.
	Complete func(*rest.Config) error
	// Home returns the client configuration for the management cluster, which has the Cluster
	// objects, and the namespace of its context. Only Cluster API needs Home.
	Home func() (*rest.Config, string, error)
}

// New returns the source in the settings.
func New(c Config) (Source, error) {
	switch s := c.Settings; {
	case len(s.Contexts) > 0:
		return polled{c.contexts, clientcmd.NewDefaultClientConfigLoadingRules().GetLoadingPrecedence}, nil
	case s.Dir != "":
		return polled{c.directory, c.paths}, nil
	case len(s.ClusterAPI) > 0:
		return newClusterAPI(c)
	}
	return nil, errors.New("no source of clusters is configured")
}

// poll is the interval between checks of the files. File system notifications would be faster, but
// they miss changes behind symbolic links, and the kubelet uses such links to update a volume.
// reread is the interval at which Watch parses unchanged files again if a cluster cannot be used,
// because its kubeconfig might name another file that is missing.
const (
	poll   = 2 * time.Second
	reread = 30 * time.Second
)

// polled is a source that reads files.
type polled struct {
	read  func() ([]Cluster, error)
	files func() []string // the files that read parses
}

// Read implements [Source].
func (p polled) Read(context.Context) ([]Cluster, error) {
	all, err := p.read()
	return unique(all), err
}

// Watch implements [Source]. Parsing a kubeconfig takes milliseconds, so Watch parses the files only
// after a change.
func (p polled) Watch(ctx context.Context, found func([]Cluster), failed func(error)) {
	var seen [sha256.Size]byte
	var due time.Time // when to parse unchanged files again; zero for never
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		files := p.files()
		is := credential.Fingerprint(files) // before the files are parsed, so that no change is missed
		if len(files) > 0 && is == seen && (due.IsZero() || time.Now().Before(due)) {
			return
		}
		all, err := p.Read(ctx)
		if failed(err); err != nil {
			seen = [sha256.Size]byte{}
			return
		}
		if seen, due = is, (time.Time{}); slices.ContainsFunc(all, func(c Cluster) bool { return c.Err != nil }) {
			due = time.Now().Add(reread)
		}
		found(all)
	}, poll)
}

// unique sorts clusters by name. It replaces several clusters with the same name by one cluster
// with an error. A cluster whose name no bus accepts also becomes a cluster with an error.
func unique(all []Cluster) (distinct []Cluster) {
	slices.SortStableFunc(all, func(a, b Cluster) int { return cmp.Compare(a.Name, b.Name) })
	for _, c := range all {
		last := len(distinct) - 1
		switch {
		case last >= 0 && distinct[last].Name == c.Name:
			distinct[last] = Cluster{Name: c.Name, Err: errors.New("several clusters of the source have this name; rename all but one")}
		case !config.IsClusterName(c.Name):
			distinct = append(distinct, Cluster{Name: c.Name, Err: errors.New("not the name of a cluster; use letters, digits, dots, underscores, and hyphens, with a letter or digit first, at most 253 characters")})
		default:
			distinct = append(distinct, c)
		}
	}
	return distinct
}

// Find returns the cluster with a name. If no cluster has the name, the error lists the names of
// the clusters.
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
	return Cluster{}, fmt.Errorf("the source has no cluster %q; it has %s", name, cmp.Or(strings.Join(names, ", "), "none"))
}

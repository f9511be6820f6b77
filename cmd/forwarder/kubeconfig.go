package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/credential"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/selector"
	"github.com/kuberelay/kuberelay/internal/sinks"
	"github.com/kuberelay/kuberelay/internal/tail"
)

// kubeConfig returns the client configuration with the address of the API server and the credentials.
// It reads them from KUBECONFIG, from the user's kubeconfig, or, in a pod, from the service account.
func kubeConfig(cfg config.Config, command string, log *slog.Logger) (*rest.Config, error) {
	kube, err := loadKubeConfig(cfg, command)
	if err != nil {
		return nil, err
	}
	return kube, followToken(kube, log)
}

// loadKubeConfig is kubeConfig without followToken. If the settings have a source of several clusters,
// it returns the configuration for the cluster that they name.
func loadKubeConfig(cfg config.Config, command string) (*rest.Config, error) {
	if cfg.Fleet.Source() != "" {
		return memberKubeConfig(context.Background(), cfg, command, slog.New(slog.DiscardHandler))
	}
	return homeKubeConfig(cfg, command)
}

// homeKubeConfig returns the client configuration for the cluster in the kubeconfig or the cluster of
// the pod.
func homeKubeConfig(cfg config.Config, command string) (*rest.Config, error) {
	if err := checkKubeconfig(os.Getenv(clientcmd.RecommendedConfigPathEnvVar)); err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	kube, err := loadedKubeconfig().ClientConfig()
	switch {
	case err == nil:
		err = hidePassword(kube)
	case clientcmd.IsEmptyConfig(err):
		err = errors.New("no cluster is configured: set KUBECONFIG to a kubeconfig file, or run in a pod")
	case strings.Contains(err.Error(), "proxy-url"): // client-go's error has the URL with its password
		err = errors.New("proxy-url in the kubeconfig is not a valid URL: correct it; write special characters of a password as %XX")
	}
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	identify(kube, cfg, command)
	return kube, nil
}

// identify sets the rate limits and the user agent of the clients.
func identify(kube *rest.Config, cfg config.Config, command string) {
	kube.QPS, kube.Burst = float32(cfg.Watch.QPS), cfg.Watch.Burst
	kube.UserAgent = "kuberelay-" + command + "/" + version
}

// hidePassword moves a user name and a password out of the URL of the API server, because logs
// and errors show the URL.
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

// followToken makes every request use the current token in the file. client-go reads the file again
// only at the first request after 50 s. That request can be the next poll of discovery, so the token
// could be a minute and a half old.
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

// checkKubeconfig returns an error if none of the files in KUBECONFIG exists, because client-go
// silently ignores missing files. As with kubectl, one existing file is enough.
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

// selection has the flags and arguments that select objects. The commands that read the bus share it.
type selection struct {
	resources, clusters, namespaces []string
}

// addFlags adds the flags for clusters and namespaces.
func (s *selection) addFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&s.clusters, "cluster", nil, "only these `clusters`, by their names on the bus; * for all, whatever KUBERELAY_CLUSTER_NAME is")
	flags.StringSliceVarP(&s.namespaces, "namespace", "n", nil, "only objects in these `namespaces`")
}

// filter checks the selection and returns a filter for it. In errors, resource is the text before the
// name of a resource, such as "--resource=".
func (s *selection) filter(flags *pflag.FlagSet, resource string) (tail.Filter, error) {
	var filter tail.Filter
	for name, values := range map[string][]string{"resource": s.resources, "cluster": s.clusters, "namespace": s.namespaces} {
		if flags.Changed(name) && len(values) == 0 { // for example, a script used an unset variable
			return filter, fmt.Errorf("--%s is empty: name at least one, or leave it out", name)
		}
	}
	for _, text := range s.resources {
		selector, err := tail.ParseSelector(text)
		if err != nil {
			return filter, fmt.Errorf("%s%q: %w", resource, text, err)
		}
		filter.Resources = append(filter.Resources, selector)
	}
	if !s.allClusters() {
		for _, text := range s.clusters {
			name, err := tail.ParseCluster(text)
			if err != nil {
				return filter, fmt.Errorf("--cluster=%q: %w", text, err)
			}
			filter.Clusters = append(filter.Clusters, name)
		}
	}
	for _, text := range s.namespaces {
		ns, err := tail.ParseNamespace(text)
		if err != nil {
			return filter, fmt.Errorf("--namespace=%q: %w", text, err)
		}
		filter.Namespaces = append(filter.Namespaces, ns)
	}
	return filter, nil
}

// allClusters reports whether --cluster is *.
func (s *selection) allClusters() bool { return slices.Equal(s.clusters, []string{"*"}) }

// readable is a bus that commands can read.
type readable interface {
	tail.Bus
	Progress(ctx context.Context, consumer string, log publish.Log) (publish.Progress, error)
	Close() error
}

var _, _ readable = (*natsreader.Bus)(nil), (*reader.Bus)(nil)

// busError returns err, wrapped in a usageError if a retry does not fix it.
func busError(err error) error {
	if errors.Is(err, natsreader.ErrMisconfigured) || errors.Is(err, reader.ErrMisconfigured) {
		return &usageError{err}
	}
	return err
}

// cluster limits the filter to the configured cluster unless the flags name other clusters. It returns
// the cluster to open the bus for, or "" for several clusters.
func (s *selection) cluster(configured string, filter *tail.Filter, status *tail.Status) string {
	if len(filter.Clusters) == 0 && configured != "" && !s.allClusters() {
		filter.Clusters = []string{configured}
		status.Say("only the cluster %s, as KUBERELAY_CLUSTER_NAME says; --cluster=* shows all", strconv.Quote(configured))
	}
	if len(filter.Clusters) == 1 {
		return filter.Clusters[0]
	}
	return ""
}

// openReader opens the bus. It logs nothing, because status tells the user about problems. reading, if
// not nil, counts the messages.
func openReader(ctx context.Context, cfg config.Config, status *tail.Status, reading *longwork.Counter) (readable, error) {
	switch cfg.Event.Sink {
	case config.SinkKafka:
		status.Source = "topic " + cfg.Kafka.Topic
		options := sinks.KafkaReader(cfg)
		options.Reading = reading
		return reader.Open(options)
	case config.SinkNATS:
	default:
		return nil, &usageError{fmt.Errorf("KUBERELAY_SINK is %s, which cannot be read back: this command reads NATS or Kafka; unset it", cfg.Event.Sink)}
	}
	if len(cfg.NATS.URLs) == 0 {
		status.Hint = builtInHint
	}
	status.Source = "stream " + cfg.NATS.Stream
	options, err := sinks.NATSReader(cfg)
	if err != nil {
		return nil, &usageError{err}
	}
	options.Reading = reading
	return natsreader.Connect(ctx, options)
}

// findAbsent returns a sentence for each name in a filter for which the bus has no event. wrong means
// that one of these names is a resource or a cluster. cfg must have no cluster name.
func findAbsent(ctx context.Context, bus tail.Bus, cfg config.Config, source string, f tail.Filter) (sentences []string, wrong bool, err error) {
	all, err := tail.FindAbsent(ctx, bus, cfg.NATS.SubjectPrefix, f)
	for _, a := range all {
		sentences = append(sentences, fmt.Sprintf("the %s has nothing of the %s %s%s", source, a.What, strconv.Quote(a.Name), alternatives(a)))
		wrong = wrong || a.What != "namespace"
	}
	return sentences, wrong, err
}

// maxAlternatives is the maximum number of names in a sentence.
const maxAlternatives = 10

// alternatives returns the end of the sentence, which suggests names that the bus has.
func alternatives(a tail.Absent) string {
	names := make([]string, len(a.Have))
	for i, name := range a.Have {
		names[i] = strings.Trim(strconv.Quote(name), `"`)
	}
	switch {
	case len(names) == 0:
		return " yet"
	case len(names) <= maxAlternatives:
		return "; it has " + strings.Join(names, ", ")
	}
	if !strings.Contains(a.Name, ".") && a.What == "resource" {
		for i := range names {
			names[i], _, _ = strings.Cut(names[i], ".")
		}
	}
	return fmt.Sprintf("; it has %d others, did you mean %s?", len(names), selector.Nearest(a.Name, names))
}

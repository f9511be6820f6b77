package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/util/cert"

	"github.com/kuberelay/kuberelay/internal/bundle"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/credential"
	"github.com/kuberelay/kuberelay/internal/kubeconfig"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/publish/stdout"
	"github.com/kuberelay/kuberelay/internal/relay"
)

func newRunCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Watch the cluster and forward its changes, until SIGTERM or SIGINT",
		Long: `Run watches the selected resources and keeps an exact copy of them on the bus. At the
start, it reads the bus and publishes what differs from the cluster, including deletes.
Then it publishes every change.

Environment variables configure the command. 'forwarder help environment' lists them,
'forwarder config' checks them, and 'forwarder check --pre' tries them with the cluster
and the bus.

On SIGTERM or SIGINT, run publishes what is left, for at most KUBERELAY_DRAIN_TIMEOUT,
and then stops. A second signal stops it at once. Nothing is lost either way.

Exit codes: 0 stopped by a signal; 1 failed while running; 2 wrong command line or
configuration.`,
		Example: `  KUBERELAY_RESOURCES=pods,deployments.apps forwarder run
  KUBERELAY_RESOURCES=pods KUBERELAY_SINK=stdout forwarder run | jq .type`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			recent := new(bundle.Log)
			return configured(cmd, config.Forwarding, func(ctx context.Context, cfg config.Config, log *slog.Logger) error {
				return runForwarder(ctx, cfg, cmd.OutOrStdout(), log, recent)
			}, recent)
		},
	}
}

// runForwarder runs the forwarder until ctx is canceled or a permanent failure occurs. It returns
// when everything that it started has ended. Until then, including during the drain, it serves
// metrics, health checks, and the recent lines of the log.
func runForwarder(ctx context.Context, cfg config.Config, out io.Writer, log *slog.Logger, recent *bundle.Log) error {
	limitMemory(log)
	registry := prometheus.NewRegistry()
	c, err := relayConfig(cfg, out, log, registry)
	if err != nil {
		return err
	}
	support := bundle.Handler(recent, func(w io.Writer) error { return writeText(w, cfg.Effective()) })
	endpoints := operations.Endpoints{Metrics: registry, Log: log, Profiles: cfg.Operations.Profiles, Support: support}
	if err := protect(&endpoints, cfg.Operations, c.Kube); err != nil {
		return &config.Error{Err: err}
	}
	server, err := operations.Listen(cfg.Operations.ListenAddr)
	if err != nil {
		return &config.Error{Err: err}
	}
	built, commit := builtFrom()
	operations.Register(registry, built, commit)
	leaderelection.SetProvider(operations.LeaderElectionMetrics(registry))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	forwarder, err := newEngine(c, &endpoints, serving.Done())
	if err != nil {
		return errors.Join(err, server.Close())
	}
	endpoints.Ready = forwarder.Checks()
	served := make(chan error, 1)
	go func() {
		served <- server.Run(serving, endpoints)
		cancel() // a forwarder that can't serve its port will be restarted anyway, so shut it down cleanly
	}()
	err = unlessStopped(ctx, forwarder.Run(ctx))
	stopServing()
	return errors.Join(<-served, err)
}

// relayConfig builds the configuration of the relay from the settings, the contents of files, and the
// identity of the pod.
func relayConfig(cfg config.Config, out io.Writer, log *slog.Logger, r prometheus.Registerer) (relay.Config, error) {
	c := relay.Config{Settings: cfg, Writer: writerName(os.Getenv), Out: stdout.NewOutput(out), Logger: log, Registerer: r}
	var err error
	if c.RedactionKey, err = cfg.Event.RedactionKey(); err != nil {
		return c, &config.Error{Err: fmt.Errorf("KUBERELAY_REDACTION_KEY_FILE: %w", err)}
	}
	several := cfg.Fleet.Source() != ""
	if !several || cfg.Operations.MetricsAuth { // with several clusters, this configuration only authorizes requests
		if c.Kube, err = finder(cfg, "forwarder", log).Home(); err != nil {
			return c, &config.Error{Err: err}
		}
	}
	if !cfg.Leader.Election {
		return c, nil
	}
	if cfg.Leader.Namespace == "" && !several {
		if c.Settings.Leader.Namespace, err = kubeconfig.Namespace(); err != nil {
			return c, &config.Error{Err: fmt.Errorf("find the namespace of the lease: %w; set KUBERELAY_LEASE_NAMESPACE", err)}
		}
	}
	if c.Identity, err = identity(os.Getenv, os.Hostname); err != nil {
		return c, &config.Error{Err: fmt.Errorf("find an identity for the lease: %w; set POD_NAME", err)}
	}
	return c, nil
}

// identity returns the name of this process in the Lease. It is the name of the pod or host with a
// random suffix, so that two processes in a pod have different names.
func identity(getenv func(string) string, hostname func() (string, error)) (string, error) {
	name := getenv("POD_NAME")
	if name == "" {
		var err error
		if name, err = hostname(); err != nil {
			return "", err
		}
	}
	return name + "_" + strings.ToLower(rand.Text()[:8]), nil
}

// writerName returns the name of this process in the writer marker on Kafka. It is POD_NAME, preceded by
// POD_NAMESPACE and a slash if that is set. Without POD_NAME, it is the host name.
func writerName(getenv func(string) string) string {
	namespace, name := getenv("POD_NAMESPACE"), getenv("POD_NAME")
	switch {
	case name == "":
		name, _ = os.Hostname() // an error is harmless: the name is only informational
	case namespace != "":
		name = namespace + "/" + name
	}
	return name
}

const (
	// memoryShare is the share of the container's memory limit that the Go runtime may use. The rest
	// is for memory that only the kernel counts.
	memoryShare = 0.9

	// collectAt is the growth of the heap, in percent, at which a garbage collection starts. An early
	// collection costs little: nearly all of the heap is memory without pointers, which the collector
	// does not scan (docs/sizing.md).
	collectAt = 30
)

// limitMemory sets the memory limit and the garbage collection percentage of the Go runtime, so that
// the process stays below the memory limit of its cgroup. GOMEMLIMIT and GOGC override these settings.
func limitMemory(log *slog.Logger) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare))
	switch {
	case err != nil: // without cgroups, there is no limit
		log.Debug("memory limit unknown", "err", err)
	case limit < math.MaxInt64:
		log.Info("memory limit set", "gomemlimit_bytes", limit)
	}
}

// protect sets TLS and authorization of the endpoints from the configuration.
func protect(e *operations.Endpoints, o config.Operations, kube *rest.Config) (err error) {
	switch {
	case o.CertFile != "":
		e.TLS, err = credential.ServerTLS("KUBERELAY_LISTEN_TLS_CERT_FILE and KUBERELAY_LISTEN_TLS_KEY_FILE", e.Log, o.CertFile, o.KeyFile)
	case o.MetricsAuth: // a token must not cross the network in the clear
		e.TLS, err = selfSigned()
	}
	if err != nil || !o.MetricsAuth {
		return err
	}
	reviews := rest.CopyConfig(kube)
	reviews.QPS, reviews.Burst = 10, 20 // unauthenticated callers can cause reviews
	tokens, err := authenticationclient.NewForConfig(reviews)
	if err != nil {
		return fmt.Errorf("KUBERELAY_METRICS_AUTH: %w", err)
	}
	access, err := authorizationclient.NewForConfig(reviews)
	if err != nil {
		return fmt.Errorf("KUBERELAY_METRICS_AUTH: %w", err)
	}
	e.Access = &operations.Authorizer{Tokens: tokens.TokenReviews(), Reviews: access.SubjectAccessReviews(), Now: time.Now, Log: e.Log}
	return nil
}

// selfSigned returns a TLS configuration with a self-signed certificate. No client can verify the
// certificate, but TLS hides tokens from passive listeners on the network.
func selfSigned() (*tls.Config, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("generate a certificate for KUBERELAY_METRICS_AUTH: %w; set KUBERELAY_LISTEN_TLS_CERT_FILE and KUBERELAY_LISTEN_TLS_KEY_FILE", err)
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(host, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("generate a certificate for KUBERELAY_METRICS_AUTH: %w; set KUBERELAY_LISTEN_TLS_CERT_FILE and KUBERELAY_LISTEN_TLS_KEY_FILE", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}, err
}

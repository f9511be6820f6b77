package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/config"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// cluster is the API server's side.
type cluster struct {
	name      string
	dynamic   dynamic.Interface
	discovery discovery.DiscoveryInterface
}

// connectCluster makes the clients, from KUBECONFIG or, in a pod, from its service
// account, and learns the cluster's name. It waits for an API server that cannot
// be reached, and says so; progress is told why.
func connectCluster(ctx context.Context, cfg config.Config, log *slog.Logger, progress func(func() error)) (*cluster, error) {
	rc, err := kubeConfig(cfg, "forwarder")
	if err != nil {
		return nil, &usageError{err}
	}
	c := &cluster{name: cfg.Event.ClusterName}
	if c.dynamic, err = dynamic.NewForConfig(rc); err != nil {
		return nil, &usageError{fmt.Errorf("find the cluster: %w", err)}
	}
	// Discovery is asked seldom and in bursts.
	dc := rest.CopyConfig(rc)
	dc.QPS, dc.Burst = 0, 300
	client, err := discovery.NewDiscoveryClientForConfig(dc)
	if err != nil {
		return nil, &usageError{fmt.Errorf("find the cluster: %w", err)}
	}
	c.discovery = client
	err = c.awaitAPIServer(ctx, rc.Host, log, progress)
	return c, err
}

var apiServerBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.3, Steps: 1 << 30, Cap: 10 * time.Second}

func (c *cluster) awaitAPIServer(ctx context.Context, host string, log *slog.Logger, progress func(func() error)) error {
	backoff, said := apiServerBackoff, ""
	for {
		err := c.ask(ctx)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if permanent := explainAPIServer(host, err); permanent != nil {
			return permanent
		}
		err = fmt.Errorf("the API server %s cannot be reached: %w", host, err)
		progress(func() error { return err })
		if err.Error() != said {
			said = err.Error()
			log.Error("waiting for the API server", "err", err)
		}
		timer := time.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// ask asks the API server for the cluster's name, or, where that is configured,
// only whether it talks to us.
//
// An API server that has just started forbids everything until it has read its
// roles. Only what one forbids that is ready will stay forbidden.
func (c *cluster) ask(ctx context.Context) error {
	if c.name != "" {
		err := c.discovery.RESTClient().Get().AbsPath("/version").Do(ctx).Error()
		if apierrors.IsForbidden(err) {
			return nil
		}
		return err
	}
	err := c.readName(ctx)
	if !apierrors.IsForbidden(err) {
		return err
	}
	if notReady := c.discovery.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); notReady != nil {
		return fmt.Errorf("%v, and it does not say that it is ready (%v)", err, notReady) //nolint:errorlint // not to be taken for a refusal
	}
	return c.readName(ctx)
}

func (c *cluster) readName(ctx context.Context) error {
	ns, err := c.dynamic.Resource(namespaces).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return err
	}
	c.name = string(ns.GetUID())
	return nil
}

// explainAPIServer gives an error for what waiting does not cure, nil for the rest.
func explainAPIServer(host string, err error) error {
	var unknown x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	switch {
	case apierrors.IsUnauthorized(err):
		return &usageError{fmt.Errorf("the API server %s does not accept our credentials: check the token or certificate in KUBECONFIG: %w", host, err)}
	case apierrors.IsForbidden(err):
		return &usageError{fmt.Errorf("the cluster's name cannot be read: set KUBERELAY_CLUSTER_NAME, or allow get on the namespace %s: %w", metav1.NamespaceSystem, err)}
	case errors.As(err, &unknown), errors.As(err, &certificate):
		return &usageError{fmt.Errorf("the certificate of the API server %s cannot be verified: check certificate-authority and server in KUBECONFIG: %w", host, err)}
	default:
		return nil
	}
}

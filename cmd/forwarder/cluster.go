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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/apistream"
	"github.com/kuberelay/kuberelay/internal/clientgo/discovery"
	"github.com/kuberelay/kuberelay/internal/clientgo/typed"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/informers"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// cluster is the API server's side.
type cluster struct {
	name      string
	uid       string            // of its namespace kube-system; "" if that may not be read
	streams   *apistream.Client // for the lists and watches of what is selected
	dynamic   dynamic.Interface // for all others
	reads     dynamic.Interface // for single objects
	discovery discovery.DiscoveryInterface
	access    informers.Access
	rules     informers.Rules
	refusals  int // how often the API server refused to say whether it is ready
}

// connectCluster makes the clients, from KUBECONFIG or, in a pod, from its service
// account, and learns the cluster's name. It waits for an API server that cannot
// be reached, and says so; progress is told why.
func connectCluster(ctx context.Context, cfg config.Config, log *slog.Logger, progress func(func() error)) (*cluster, error) {
	rc, err := kubeConfig(cfg, "forwarder", log)
	if err != nil {
		return nil, &usageError{err}
	}
	c := &cluster{name: cfg.Event.ClusterName}
	// Each client has a limiter of its own, so that none of these waits for the
	// others: thousands of reads after an outage, and the watches that show what is new.
	if c.dynamic, err = dynamic.NewForConfig(rc); err != nil {
		return nil, &usageError{fmt.Errorf("find the cluster: %w", err)}
	}
	if c.streams, err = apistream.New(rc); err != nil {
		return nil, &usageError{fmt.Errorf("find the cluster: %w", err)}
	}
	if c.reads, err = dynamic.NewForConfig(rc); err != nil {
		return nil, &usageError{fmt.Errorf("find the cluster: %w", err)}
	}
	// Discovery, and what we may do, are asked seldom and in bursts.
	dc := rest.CopyConfig(rc)
	dc.QPS, dc.Burst = 50, 300
	client, err := discovery.NewDiscoveryClientForConfig(dc)
	if err != nil {
		return nil, &usageError{fmt.Errorf("find the cluster: %w", err)}
	}
	c.discovery = client
	reviews, err := typed.NewReviews(dc)
	if err != nil {
		return nil, &usageError{fmt.Errorf("find the cluster: %w", err)}
	}
	c.access, c.rules = reviews.SelfSubjectAccessReviews(), reviews.SelfSubjectRulesReviews()
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

// maxRefusals is how often an API server may refuse to say whether it is ready before
// that is taken for its last word.
const maxRefusals = 6

// ask asks the API server for the UID of its namespace kube-system, which is the
// cluster's name unless one is configured. Where one is, the UID may be kept from us.
//
// An API server that has just started forbids everything until it has read its
// roles. Only what one forbids that is ready will stay forbidden.
func (c *cluster) ask(ctx context.Context) error {
	err := c.readUID(ctx)
	switch {
	case apierrors.IsNotFound(err) && c.name != "": // there are API servers without it
		return nil
	case !apierrors.IsForbidden(err):
		return err
	}
	notReady := c.discovery.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	if apierrors.IsForbidden(notReady) {
		c.refusals++
	}
	if notReady != nil && (c.name == "" || c.refusals < maxRefusals) {
		return fmt.Errorf("%v, and it does not say that it is ready (%v)", err, notReady) //nolint:errorlint // not to be taken for a refusal
	}
	if err = c.readUID(ctx); c.name != "" && apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

func (c *cluster) readUID(ctx context.Context) error {
	ns, err := c.dynamic.Resource(namespaces).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return err
	}
	c.uid = string(ns.GetUID())
	if c.name == "" {
		c.name = c.uid
	}
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

package relay

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubediscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/apistream"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/deadline"
	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/refusal"
	"github.com/kuberelay/kuberelay/internal/relay/retry"
)

// cluster is the name of the cluster and the clients of its API server.
type cluster struct {
	name      string
	uid       string            // of the kube-system namespace; "" if reading it is forbidden
	streams   *apistream.Client // for lists and watches of selected resources
	dynamic   dynamic.Interface // for other lists and watches
	reads     dynamic.Interface // for single objects
	discovery kubediscovery.DiscoveryInterface
	reviews   authorizationclient.SelfSubjectAccessReviewInterface
	access    *discovery.Access
	denials   int // how often the API server denied access to its /readyz
}

// connectCluster creates the clients and reads the cluster's name. If the API server is unreachable or does
// not respond, connectCluster logs the reason, passes the reason to waitFor, and retries. It returns when ctx
// ends, even if a credential plugin of the kubeconfig hangs: client-go ignores ctx while it waits for a
// plugin.
func connectCluster(ctx context.Context, c Config, waitFor func(func() error)) (*cluster, error) {
	cl, err := newCluster(c.Kube)
	if err != nil {
		return nil, &config.Error{Err: fmt.Errorf("find the cluster: %w", err)}
	}
	cl.name = c.Settings.Event.ClusterName
	return deadline.Run(ctx, func(ctx context.Context) (*cluster, error) {
		err := cl.awaitAPIServer(ctx, c.Kube.Host, c.Logger, waitFor)
		return cl, err
	})
}

func newCluster(rc *rest.Config) (_ *cluster, err error) {
	c := &cluster{}
	// Each client has its own rate limiter, so that thousands of reads after an outage do not
	// delay the watches.
	if c.dynamic, err = dynamic.NewForConfig(rc); err != nil {
		return nil, err
	}
	if c.streams, err = apistream.New(rc); err != nil {
		return nil, err
	}
	if c.reads, err = dynamic.NewForConfig(rc); err != nil {
		return nil, err
	}
	// Discovery and access reviews are rare and come in bursts.
	bursts := rest.CopyConfig(rc)
	bursts.QPS, bursts.Burst = 50, 300
	if c.discovery, err = kubediscovery.NewDiscoveryClientForConfig(bursts); err != nil {
		return nil, err
	}
	reviews, err := authorizationclient.NewForConfig(bursts)
	if err != nil {
		return nil, err
	}
	c.reviews = reviews.SelfSubjectAccessReviews()
	c.access = discovery.NewAccess(c.reviews, reviews.SelfSubjectRulesReviews(), time.Now)
	return c, nil
}

// identifyTimeout limits each attempt to read the cluster's name. An API server with many requests can
// hold a request for 15 seconds before it starts to process it.
const identifyTimeout = 30 * time.Second

func (c *cluster) awaitAPIServer(ctx context.Context, host string, log *slog.Logger, waitFor func(func() error)) error {
	logged := ""
	return retry.Until(ctx, func() error {
		attempt, cancel := context.WithTimeout(ctx, identifyTimeout)
		defer cancel()
		return c.identify(attempt)
	}, func(err error) error {
		if permanent := explainAPIServer(host, err); permanent != nil {
			return permanent
		}
		err = fmt.Errorf("the API server %s %s: %w", host, failure(err), refusal.Explain(err))
		waitFor(func() error { return err })
		if err.Error() != logged {
			logged = err.Error()
			log.Error("waiting for the API server", "err", err)
		}
		return nil
	})
}

// failure describes why the API server cannot be used.
func failure(err error) string {
	var answer apierrors.APIStatus
	var starting *notReadyError
	switch {
	case errors.As(err, &answer):
		return "refuses the forwarder"
	case errors.As(err, &starting):
		return "is not ready"
	case errors.Is(err, context.DeadlineExceeded):
		return "does not respond"
	default:
		return "is unreachable"
	}
}

// notReadyError means that an API server denies access and is not ready. It wraps no error, because
// such a denial is not final.
type notReadyError struct{ denied, ready error }

func (e *notReadyError) Error() string {
	return fmt.Sprintf("access to the namespace %s is denied (%v), and GET /readyz fails (%v)",
		metav1.NamespaceSystem, refusal.Explain(e.denied), refusal.Explain(e.ready))
}

// maxDenials is the number of denials of access to /readyz after which the API server's other
// denials count as final.
const maxDenials = 6

// identify reads the UID of the kube-system namespace, which is the cluster's name unless one is
// configured. With a configured name, a forbidden UID is not an error.
//
// An API server that has just started denies every request until it has loaded its roles. So a
// denial is final only after the API server is ready. With a configured name, a denial is also
// final after maxDenials denials of access to /readyz.
func (c *cluster) identify(ctx context.Context) error {
	err := c.readUID(ctx)
	switch {
	case apierrors.IsNotFound(err) && c.name != "": // some API servers do not have this namespace
		return nil
	case !apierrors.IsForbidden(err):
		return err
	}
	notReady := c.discovery.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	if apierrors.IsForbidden(notReady) {
		c.denials++
	}
	if notReady != nil && (c.name == "" || c.denials < maxDenials) {
		return &notReadyError{err, notReady}
	}
	if err = c.readUID(ctx); c.name != "" && apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

func (c *cluster) readUID(ctx context.Context) error {
	uid, err := ClusterUID(ctx, c.dynamic)
	if err != nil {
		return err
	}
	c.uid, c.name = uid, cmp.Or(c.name, uid)
	return nil
}

// ClusterUID reads the UID of the kube-system namespace, which identifies the cluster.
func ClusterUID(ctx context.Context, client dynamic.Interface) (string, error) {
	ns, err := client.Resource(discovery.NamespaceResource).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return string(ns.GetUID()), nil
}

// explainAPIServer returns a config.Error for an error that a retry cannot fix, and nil otherwise.
func explainAPIServer(host string, err error) error {
	var unknown x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	switch {
	case apierrors.IsUnauthorized(err):
		return &config.Error{Err: fmt.Errorf("the API server %s does not accept the credentials: %w", host, refusal.Explain(err))}
	case apierrors.IsForbidden(err):
		return &config.Error{Err: fmt.Errorf("the cluster's name cannot be read: %w; set KUBERELAY_CLUSTER_NAME, or allow get on the namespace %s", refusal.Explain(err), metav1.NamespaceSystem)}
	case errors.As(err, &unknown), errors.As(err, &certificate):
		return &config.Error{Err: fmt.Errorf("the certificate of the API server %s cannot be verified: %w; check certificate-authority and server in the kubeconfig", host, err)}
	default:
		return nil
	}
}

package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	kubediscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/check"
	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/relay"
)

// cluster sends requests to the API server of a kubeconfig.
type cluster struct {
	rest      *rest.Config
	dynamic   dynamic.Interface
	discovery kubediscovery.DiscoveryInterface
}

// newCluster returns the cluster of a kubeconfig, or an error if the kubeconfig cannot be used. The
// timeout bounds each request.
func newCluster(rc *rest.Config, timeout time.Duration) (*cluster, error) {
	c := &cluster{rest: rest.CopyConfig(rc)}
	c.rest.Timeout = timeout
	var err error
	if c.dynamic, err = dynamic.NewForConfig(c.rest); err != nil {
		return nil, err
	}
	c.discovery, err = kubediscovery.NewDiscoveryClientForConfig(c.rest)
	return c, err
}

// server observes the API server. certificate is the validity of the server's certificate, or empty
// if the server has none.
func (c *cluster) server(ctx context.Context) (s check.Server, certificate []check.Validity) {
	s.Host = c.rest.Host
	if certificate, s.Err = c.first(ctx, &s); s.Err != nil {
		return s, certificate
	}
	if s.Err = c.user(ctx, &s); s.Err != nil {
		return s, certificate
	}
	s.Ready = discovery.Ready(ctx, c.discovery)
	s.UID, s.UIDErr = relay.ClusterUID(ctx, c.dynamic)
	return s, certificate
}

// first sends one request. The response shows the version, the time, and the certificate of the
// server. The status of the response does not matter.
func (c *cluster) first(ctx context.Context, s *check.Server) (certificate []check.Validity, err error) {
	base, _, err := rest.DefaultServerUrlFor(c.rest)
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(c.rest)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("version").String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		skew := skewOf(date, sent, time.Now())
		s.Skew = &skew
	}
	if response.TLS != nil && len(response.TLS.PeerCertificates) > 0 {
		is := response.TLS.PeerCertificates[0]
		certificate = []check.Validity{{What: "the certificate of the API server", From: is.NotBefore, Until: is.NotAfter}}
	}
	var info version.Info
	if json.NewDecoder(response.Body).Decode(&info) == nil {
		s.Version = info.GitVersion
	}
	return certificate, nil
}

// skewOf returns how far a remote clock is ahead. The remote clock showed date, in whole seconds,
// at some moment between sent and received. The result is 0 if the clocks can be equal.
func skewOf(date, sent, received time.Time) time.Duration {
	switch {
	case date.After(received):
		return date.Sub(received)
	case date.Add(time.Second).Before(sent):
		return date.Add(time.Second).Sub(sent)
	}
	return 0
}

// user asks the API server for the name of the user. API servers before 1.28 do not report it.
func (c *cluster) user(ctx context.Context, s *check.Server) error {
	client, err := authenticationclient.NewForConfig(c.rest)
	if err != nil {
		return err
	}
	review, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("identify the user: %w", err)
	}
	s.User = review.Status.UserInfo.Username
	return nil
}

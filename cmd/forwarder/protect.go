package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"time"

	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/credential"
	"github.com/kuberelay/kuberelay/internal/operations"
)

// protect sets TLS and authorization as the configuration says.
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
	reviews.QPS, reviews.Burst = 10, 20 // anyone can present tokens
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

// selfSigned returns a certificate that no client can verify. It keeps tokens from those who
// only listen on the network.
func selfSigned() (*tls.Config, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("make a certificate for KUBERELAY_METRICS_AUTH: %w; set KUBERELAY_LISTEN_TLS_CERT_FILE", err)
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(host, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("make a certificate for KUBERELAY_METRICS_AUTH: %w; set KUBERELAY_LISTEN_TLS_CERT_FILE", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}, err
}

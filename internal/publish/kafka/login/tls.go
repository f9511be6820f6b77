package login

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/kuberelay/kuberelay/internal/credential"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
)

// TLS establishes TLS connections with the current contents of the certificate files.
type TLS struct {
	roots       *credential.File[*x509.CertPool]   // nil for the system's authorities
	certificate *credential.File[*tls.Certificate] // nil for no client certificate
	name        string                             // server name that the certificates must have; "" for the host
}

// NewTLS reads the certificate files. If caFile is empty, it uses the system's
// authorities. If certFile is empty, there is no client certificate. If name is empty, the server name
// is the host of the connection.
func NewTLS(caFile, certFile, keyFile, name string, log *slog.Logger) (*TLS, error) {
	h := &TLS{name: name}
	var err error
	if caFile != "" {
		h.roots, err = credential.NewFile("KUBERELAY_KAFKA_TLS_CA_FILE", log, func() (*x509.CertPool, error) { return credential.Roots(caFile) })
		if err != nil {
			return nil, failure.Misconfigured("%w", err)
		}
	}
	if certFile != "" {
		h.certificate, err = credential.NewFile("KUBERELAY_KAFKA_TLS_CERT_FILE and KUBERELAY_KAFKA_TLS_KEY_FILE", log,
			func() (*tls.Certificate, error) { return credential.Pair(certFile, keyFile) })
		if err != nil {
			return nil, failure.Misconfigured("%w", err)
		}
	}
	return h, nil
}

// Handshake wraps conn in a TLS connection to host. If the handshake fails, Handshake closes conn.
func (h *TLS) Handshake(ctx context.Context, conn net.Conn, host string) (net.Conn, error) {
	config := &tls.Config{ServerName: cmp.Or(h.name, host), MinVersion: tls.VersionTLS12}
	if h.roots != nil {
		config.RootCAs = h.roots.Get()
	}
	if h.certificate != nil {
		// With the field Certificates, crypto/tls would send no certificate if the server
		// names other authorities. The server could then not report what is wrong with the
		// certificate.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return h.certificate.Get(), nil
		}
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("TLS handshake: %w%s", err, tlsHint(err))
	}
	return secure, nil
}

// tlsHint returns the fix for a failed handshake, or "" if no fix is known.
func tlsHint(err error) string {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &authority):
		return ": set KUBERELAY_KAFKA_TLS_CA_FILE to a file with the CA certificate of the brokers"
	case errors.As(err, &host):
		return ": each broker's certificate must have the names of the broker in advertised.listeners and KUBERELAY_KAFKA_BROKERS; or set KUBERELAY_KAFKA_TLS_SERVER_NAME to a name that all of the certificates have"
	case errors.As(err, &record):
		return ": that port does not use TLS; use another port in KUBERELAY_KAFKA_BROKERS, or set KUBERELAY_KAFKA_TLS=false"
	}
	return ""
}

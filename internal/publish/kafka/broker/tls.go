package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"github.com/kuberelay/kuberelay/internal/credential"
)

// handshaker makes TLS connections with the files as they are at that moment.
type handshaker struct {
	roots       *credential.File[*x509.CertPool]   // nil for the system's
	certificate *credential.File[*tls.Certificate] // nil for none
}

func (o Options) handshaker() (*handshaker, error) {
	if !o.TLS {
		return nil, nil
	}
	h := new(handshaker)
	var err error
	if o.CAFile != "" {
		h.roots, err = credential.NewFile("KUBERELAY_KAFKA_TLS_CA_FILE", o.Logger, func() (*x509.CertPool, error) { return credential.Roots(o.CAFile) })
		if err != nil {
			return nil, misconfigured("%w", err)
		}
	}
	if o.CertFile != "" {
		h.certificate, err = credential.NewFile("KUBERELAY_KAFKA_TLS_CERT_FILE and KUBERELAY_KAFKA_TLS_KEY_FILE", o.Logger,
			func() (*tls.Certificate, error) { return credential.Pair(o.CertFile, o.KeyFile) })
		if err != nil {
			return nil, misconfigured("%w", err)
		}
	}
	return h, nil
}

// handshake makes conn a TLS connection to host. On an error conn is closed.
func (h *handshaker) handshake(ctx context.Context, conn net.Conn, host string) (net.Conn, error) {
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if h.roots != nil {
		config.RootCAs = h.roots.Get()
	}
	if h.certificate != nil {
		// Not Certificates, of which none is shown where the server names other
		// authorities than its issuer: so the server can say what it has against it.
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

// tlsHint says what to do about a handshake that failed, where that is known.
func tlsHint(err error) string {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &authority):
		return ": put the certificate of the brokers' authority into the file that KUBERELAY_KAFKA_TLS_CA_FILE names"
	case errors.As(err, &host):
		return ": the brokers' certificate must be good for the name that they advertise, and KUBERELAY_KAFKA_BROKERS has"
	case errors.As(err, &record):
		return ": that port speaks no TLS; name another in KUBERELAY_KAFKA_BROKERS, or set KUBERELAY_KAFKA_TLS=false"
	}
	return ""
}

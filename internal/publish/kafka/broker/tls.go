package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// handshaker makes TLS connections with the files as they are at that moment.
type handshaker struct {
	roots       *reread[*x509.CertPool]   // nil for the system's
	certificate *reread[*tls.Certificate] // nil for none
}

func (o Options) handshaker() (*handshaker, error) {
	if !o.TLS {
		return nil, nil
	}
	h := new(handshaker)
	var err error
	if o.CAFile != "" {
		if h.roots, err = newReread("KUBERELAY_KAFKA_TLS_CA_FILE", o.Logger, func() (*x509.CertPool, error) { return loadRoots(o.CAFile) }); err != nil {
			return nil, err
		}
	}
	if o.CertFile != "" {
		h.certificate, err = newReread("KUBERELAY_KAFKA_TLS_CERT_FILE and KUBERELAY_KAFKA_TLS_KEY_FILE", o.Logger, func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("%s and %s: %w", o.CertFile, o.KeyFile, err)
			}
			return &pair, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return h, nil
}

func loadRoots(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", path)
	}
	return roots, nil
}

// handshake makes conn a TLS connection to host. On an error conn is closed.
func (h *handshaker) handshake(ctx context.Context, conn net.Conn, host string) (net.Conn, error) {
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if h.roots != nil {
		config.RootCAs = h.roots.get()
	}
	if h.certificate != nil {
		// Not Certificates, of which none is shown where the server names other
		// authorities than its issuer: so the server can say what it has against it.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return h.certificate.get(), nil
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

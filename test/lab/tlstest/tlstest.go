// Package tlstest issues certificates for tests. A certificate authority exists as long as its test.
// Its certificates are valid for a day, for servers on 127.0.0.1 and for clients.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A CA is the certificate authority of one test.
type CA struct {
	// File is the path of the authority's certificate in PEM. Pool contains the same certificate.
	File string
	Pool *x509.CertPool

	t      testing.TB
	issuer tls.Certificate
}

// NewCA creates a certificate authority.
func NewCA(t testing.TB) *CA {
	t.Helper()
	ca := &CA{t: t, Pool: x509.NewCertPool()}
	template := ca.template("test CA")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	ca.issuer, ca.File, _ = ca.issue(template)
	ca.Pool.AddCert(ca.issuer.Leaf)
	return ca
}

// Issue issues a certificate with a common name. It returns the certificate and the paths of the PEM
// files of the certificate and of its key, which is in PKCS #8.
func (ca *CA) Issue(name string) (certificate tls.Certificate, certFile, keyFile string) {
	ca.t.Helper()
	template := ca.template(name)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return ca.issue(template)
}

// IssueFor issues a server certificate for a DNS name, without an IP address.
func (ca *CA) IssueFor(name string) (certificate tls.Certificate, certFile, keyFile string) {
	ca.t.Helper()
	template := ca.template(name)
	template.DNSNames = []string{name}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return ca.issue(template)
}

// Expired is Issue for an expired certificate.
func (ca *CA) Expired(name string) (certificate tls.Certificate, certFile, keyFile string) {
	ca.t.Helper()
	template := ca.template(name)
	template.NotBefore, template.NotAfter = template.NotBefore.Add(-time.Hour), template.NotBefore
	return ca.issue(template)
}

// ExpiresSoon is Issue for a certificate that expires in one minute.
func (ca *CA) ExpiresSoon(name string) (certificate tls.Certificate, certFile, keyFile string) {
	ca.t.Helper()
	template := ca.template(name)
	template.NotAfter = time.Now().Add(time.Minute)
	return ca.issue(template)
}

// Config returns the TLS configuration of a client that trusts the authority and presents the given
// certificates, if any.
func (ca *CA) Config(certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: ca.Pool, Certificates: certificates, MinVersion: tls.VersionTLS12}
}

func (ca *CA) template(name string) *x509.Certificate {
	ca.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		ca.t.Fatal(err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
}

// issue issues a certificate and writes its files. The first certificate is the authority's own and is
// self-signed.
func (ca *CA) issue(template *x509.Certificate) (certificate tls.Certificate, certFile, keyFile string) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	parent, signer := template, any(key)
	if ca.issuer.Leaf != nil {
		parent, signer = ca.issuer.Leaf, ca.issuer.PrivateKey
	}
	certDER, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		ca.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	dir := ca.t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: certDER},
		keyFile:  {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			ca.t.Fatal(err)
		}
	}
	if certificate, err = tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		ca.t.Fatal(err)
	}
	return certificate, certFile, keyFile
}

package natstest

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

// CA is a certificate authority that lives as long as its test.
type CA struct {
	// File holds the authority's certificate in PEM.
	File string
	// Pool holds the same.
	Pool *x509.CertPool

	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes an authority.
func NewCA(t testing.TB) *CA {
	t.Helper()
	ca := &CA{t: t, Pool: x509.NewCertPool(), File: filepath.Join(t.TempDir(), "ca.pem")}
	ca.cert = ca.template("a CA for tests")
	ca.cert.IsCA, ca.cert.BasicConstraintsValid = true, true
	ca.cert.KeyUsage = x509.KeyUsageCertSign
	ca.key = newKey(t)
	der := ca.sign(ca.cert, ca.key)
	var err error
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	ca.Pool.AddCert(ca.cert)
	writePEM(t, ca.File, "CERTIFICATE", der)
	return ca
}

// Issue makes a certificate for a server on 127.0.0.1, or a client, and the files
// that hold it and its key in PEM.
func (ca *CA) Issue(name string) (certificate tls.Certificate, certFile, keyFile string) {
	ca.t.Helper()
	template := ca.template(name)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	key := newKey(ca.t)
	dir := ca.t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(ca.t, certFile, "CERTIFICATE", ca.sign(template, key))
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	writePEM(ca.t, keyFile, "PRIVATE KEY", der)
	if certificate, err = tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		ca.t.Fatal(err)
	}
	return certificate, certFile, keyFile
}

func (ca *CA) template(name string) *x509.Certificate {
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

func (ca *CA) sign(template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	ca.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		ca.t.Fatal(err)
	}
	return der
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

package kafkabrokertest

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

	"github.com/kuberelay/kuberelay/internal/kafkabroker"
)

// A CA is a certificate authority of one test.
type CA struct {
	// Broker is for the options of a broker whose certificate is from this
	// authority. It asks no client for one, unless CAFile is set to File.
	Broker kafkabroker.TLS
	// File holds the authority's certificate in PEM, Pool the same.
	File string
	Pool *x509.CertPool

	t      testing.TB
	dir    string
	issuer tls.Certificate
}

// NewCA makes an authority and a broker's certificate.
func NewCA(t testing.TB) *CA {
	t.Helper()
	ca := &CA{t: t, dir: t.TempDir(), Pool: x509.NewCertPool()}
	template := certificateOf("test CA")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	ca.issuer, ca.File, _ = ca.make("ca", template)
	ca.Pool.AddCert(ca.issuer.Leaf)
	template = certificateOf("broker")
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	_, ca.Broker.CertFile, ca.Broker.KeyFile = ca.make("broker", template)
	return ca
}

// Client makes a client's certificate, and the files that hold it and its key
// in PEM. To a broker that asks for it the client is the user of this name.
func (ca *CA) Client(name string) (certificate tls.Certificate, certFile, keyFile string) {
	ca.t.Helper()
	return ca.make(name, certificateOf(name))
}

// Config is what a client needs that trusts the broker, and shows certificates
// if it is given some.
func (ca *CA) Config(certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: ca.Pool, Certificates: certificates, MinVersion: tls.VersionTLS12}
}

func certificateOf(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		NotBefore:   time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// make makes a certificate and its files. The authority's own is the first, and
// signed by itself.
func (ca *CA) make(name string, template *x509.Certificate) (certificate tls.Certificate, certFile, keyFile string) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		ca.t.Fatal(err)
	}
	parent, signer := template, any(key)
	if ca.issuer.Leaf != nil {
		parent, signer = ca.issuer.Leaf, ca.issuer.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		ca.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	if certificate, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		ca.t.Fatal(err)
	}
	return certificate, ca.write(name+".pem", certPEM), ca.write(name+".key", keyPEM)
}

func (ca *CA) write(name string, content []byte) (file string) {
	ca.t.Helper()
	dir, err := os.MkdirTemp(ca.dir, "")
	if err != nil {
		ca.t.Fatal(err)
	}
	file = filepath.Join(dir, name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		ca.t.Fatal(err)
	}
	return file
}

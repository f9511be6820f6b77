package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
)

// tlsFiles are the files of one bus.
type tlsFiles struct {
	prefix        string // of the names of the variables
	ca, cert, key string // paths
}

func (p *problems) checkTLS(f tlsFiles) {
	ca, cert, key := f.prefix+"_CA_FILE", f.prefix+"_CERT_FILE", f.prefix+"_KEY_FILE"
	if pem := p.read(ca, f.ca); pem != nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
		p.add(ca, "the file holds no certificate in PEM; write it as -----BEGIN CERTIFICATE-----")
	}
	switch {
	case p.has(cert) || p.has(key):
	case f.cert != "" && f.key == "":
		p.add(cert, "a certificate needs its key; set %s", key)
	case f.cert == "" && f.key != "":
		p.add(key, "a key needs its certificate; set %s", cert)
	case f.cert != "":
		if _, err := tls.LoadX509KeyPair(f.cert, f.key); err != nil {
			p.add(cert, "it does not go with %s: %w; both must be in PEM and of one pair", key, withoutPath(err))
		}
	}
}

// withoutPath leaves out the name of a file that vanished or changed since it was
// checked.
func withoutPath(err error) error {
	var in *os.PathError
	if errors.As(err, &in) {
		return in.Err
	}
	return err
}

// read gives what a file holds, nil where there is none or where it was found
// wrong already.
func (p *problems) read(name, path string) []byte {
	if path == "" || p.has(name) {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		p.add(name, "the file cannot be read: %w", withoutPath(err))
		return nil
	}
	return content
}

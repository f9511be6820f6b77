package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// tlsFiles are the TLS files of one connection or listener.
type tlsFiles struct {
	prefix        string // prefix of the variable names
	ca, cert, key string // paths
}

func (p *problems) checkTLS(f tlsFiles) {
	ca, cert, key := f.prefix+"_CA_FILE", f.prefix+"_CERT_FILE", f.prefix+"_KEY_FILE"
	if pem := p.read(ca, f.ca); pem != nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
		p.add(ca, "the file contains no PEM certificate; write it as -----BEGIN CERTIFICATE-----")
	}
	switch {
	case p.has(cert) || p.has(key):
	case f.cert != "" && f.key == "":
		p.add(cert, "a certificate needs its key; set %s", key)
	case f.cert == "" && f.key != "":
		p.add(key, "a key needs its certificate; set %s", cert)
	case f.cert != "":
		if _, err := tls.LoadX509KeyPair(f.cert, f.key); err != nil {
			p.add(cert, "it does not match %s: %w; both must be in PEM and form a pair", key, withoutPath(err))
		}
	}
}

// withoutPath removes the path from the error of a file that vanished or changed after the check.
func withoutPath(err error) error {
	var in *os.PathError
	if errors.As(err, &in) {
		return in.Err
	}
	return err
}

// read returns the content of a file. It returns nil if no file is set, or if the variable has a
// problem.
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

// minRedactionKey is the minimum length of a key in bytes: 128 bits, if the key is random.
const minRedactionKey = 16

// RedactionKey reads and checks the key of the hashes that replace the values of Secrets. The key
// is nil if no file is set. The file can change at any time, so use a key only if the same call
// returned no error.
func (e *Event) RedactionKey() ([]byte, error) {
	if e.RedactionKeyFile == "" {
		return nil, nil
	}
	content, err := os.ReadFile(e.RedactionKeyFile)
	if err != nil {
		return nil, fmt.Errorf("the file cannot be read: %w", withoutPath(err))
	}
	if len(bytes.TrimSpace(content)) < minRedactionKey {
		return nil, fmt.Errorf("the key is shorter than %d bytes; make one with: head -c 32 /dev/urandom | base64", minRedactionKey)
	}
	return bytes.TrimRight(content, "\r\n"), nil // the last line break, which an editor adds, is not part of the key
}

package nats

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// credentials turns the files of o into options of nats.go, all of which read
// them again at each reconnect. Every file is read once here, so that what is
// missing is said before anything is tried.
func (o Options) credentials() ([]natsgo.Option, error) {
	var opts []natsgo.Option
	kinds := 0
	if o.User != "" || o.PasswordFile != "" {
		kinds++
		if o.User == "" || o.PasswordFile == "" {
			return nil, misconfigured("KUBERELAY_NATS_USER and KUBERELAY_NATS_PASSWORD_FILE need each other")
		}
		password, err := newSecretFile("KUBERELAY_NATS_PASSWORD_FILE", o.PasswordFile, o.Logger)
		if err != nil {
			return nil, err
		}
		opts = append(opts, natsgo.UserInfoHandler(func() (string, string) { return o.User, password.read() }))
	}
	if o.TokenFile != "" {
		kinds++
		token, err := newSecretFile("KUBERELAY_NATS_TOKEN_FILE", o.TokenFile, o.Logger)
		if err != nil {
			return nil, err
		}
		opts = append(opts, natsgo.TokenHandler(token.read))
	}
	if o.CredsFile != "" {
		kinds++
		if err := checkCreds(o.CredsFile); err != nil {
			return nil, misconfigured("KUBERELAY_NATS_CREDS_FILE: %w", err)
		}
		opts = append(opts, natsgo.UserCredentials(o.CredsFile))
	}
	if o.NkeyFile != "" {
		kinds++
		if _, err := os.ReadFile(o.NkeyFile); err != nil {
			return nil, misconfigured("KUBERELAY_NATS_NKEY_FILE: %w", err)
		}
		opt, err := natsgo.NkeyOptionFromSeed(o.NkeyFile)
		if err != nil { // not wrapped: it may quote the seed
			return nil, misconfigured("KUBERELAY_NATS_NKEY_FILE: %s holds no seed of a user's nkey", o.NkeyFile)
		}
		opts = append(opts, opt)
	}
	if kinds > 1 {
		return nil, misconfigured("more than one kind of credentials is set: " +
			"use one of KUBERELAY_NATS_PASSWORD_FILE, _TOKEN_FILE, _CREDS_FILE and _NKEY_FILE")
	}
	tlsOpts, err := o.tls()
	return append(opts, tlsOpts...), err
}

func (o Options) tls() ([]natsgo.Option, error) {
	var opts []natsgo.Option
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, misconfigured("KUBERELAY_NATS_TLS_CA_FILE: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return nil, misconfigured("KUBERELAY_NATS_TLS_CA_FILE: %s holds no certificate in PEM", o.CAFile)
		}
		opts = append(opts, natsgo.RootCAs(o.CAFile))
	}
	if o.CertFile != "" || o.KeyFile != "" {
		if o.CertFile == "" || o.KeyFile == "" {
			return nil, misconfigured("KUBERELAY_NATS_TLS_CERT_FILE and KUBERELAY_NATS_TLS_KEY_FILE need each other")
		}
		if _, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile); err != nil {
			return nil, misconfigured("KUBERELAY_NATS_TLS_CERT_FILE %s and KUBERELAY_NATS_TLS_KEY_FILE %s: %w", o.CertFile, o.KeyFile, err)
		}
		opts = append(opts, natsgo.ClientCert(o.CertFile, o.KeyFile))
	}
	return opts, nil
}

// checkCreds never quotes the file's content.
func checkCreds(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	defer clear(content)
	if jwt, err := nkeys.ParseDecoratedJWT(content); err != nil || jwt == "" {
		return fmt.Errorf("%s holds no user JWT", path)
	}
	pair, err := nkeys.ParseDecoratedUserNKey(content)
	if err != nil {
		return fmt.Errorf("%s holds no seed of a user's nkey", path)
	}
	pair.Wipe()
	return nil
}

// secretFile is a secret in a file that may be rotated. While it cannot be read,
// as between the two steps of a careless rotation, the last value read stands in.
type secretFile struct {
	setting, path string
	log           *slog.Logger

	mu   sync.Mutex
	last string
}

func newSecretFile(setting, path string, log *slog.Logger) (*secretFile, error) {
	f := &secretFile{setting: setting, path: path, log: log}
	var err error
	if f.last, err = f.load(); err != nil {
		return nil, misconfigured("%s: %w", setting, err)
	}
	return f, nil
}

func (f *secretFile) load() (string, error) {
	content, err := os.ReadFile(f.path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(content), "\r\n")
	if secret == "" {
		return "", errors.New(f.path + " is empty")
	}
	return secret, nil
}

func (f *secretFile) read() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	secret, err := f.load()
	if err != nil {
		f.log.Warn("cannot read the credentials again, using the last ones", "setting", f.setting, "err", err)
		return f.last
	}
	f.last = secret
	return secret
}

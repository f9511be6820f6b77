package nats

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/kuberelay/kuberelay/internal/credential"
)

// files are all that may be replaced.
func (o Options) files() *credential.Watcher {
	return credential.NewWatcher(o.PasswordFile, o.TokenFile, o.CredsFile, o.NkeyFile, o.CAFile, o.CertFile, o.KeyFile)
}

// credentials turns the files of o into options of nats.go, all of which read
// them again at each reconnect. Every file is read once here, so that what is
// missing is said before anything is tried.
func (o Options) credentials() ([]natsgo.Option, error) {
	var opts []natsgo.Option
	kinds := 0
	for _, kind := range []struct {
		set  bool
		make func() (natsgo.Option, error)
	}{
		{o.User != "" || o.PasswordFile != "", o.password},
		{o.TokenFile != "", o.token},
		{o.CredsFile != "", o.creds},
		{o.NkeyFile != "", o.nkey},
	} {
		if !kind.set {
			continue
		}
		kinds++
		opt, err := kind.make()
		if err != nil {
			return nil, misconfigured("%w", err)
		}
		opts = append(opts, opt)
	}
	if kinds > 1 {
		return nil, misconfigured("more than one kind of credentials is set: " +
			"use one of KUBERELAY_NATS_PASSWORD_FILE, _TOKEN_FILE, _CREDS_FILE and _NKEY_FILE")
	}
	if o.CAFile == "" && o.CertFile == "" && o.KeyFile == "" {
		return opts, nil
	}
	opt, err := o.tls()
	if err != nil {
		return nil, misconfigured("%w", err)
	}
	return append(opts, opt), nil
}

func (o Options) password() (natsgo.Option, error) {
	if o.User == "" || o.PasswordFile == "" {
		return nil, errors.New("KUBERELAY_NATS_USER and KUBERELAY_NATS_PASSWORD_FILE need each other")
	}
	password, err := credential.NewFile("KUBERELAY_NATS_PASSWORD_FILE", o.Logger, func() (string, error) { return credential.Secret(o.PasswordFile) })
	if err != nil {
		return nil, err
	}
	return natsgo.UserInfoHandler(func() (string, string) { return o.User, password.Get() }), nil
}

func (o Options) token() (natsgo.Option, error) {
	token, err := credential.NewFile("KUBERELAY_NATS_TOKEN_FILE", o.Logger, func() (string, error) { return credential.Secret(o.TokenFile) })
	if err != nil {
		return nil, err
	}
	return natsgo.TokenHandler(token.Get), nil
}

// userJWT is what a creds file holds.
type userJWT struct {
	jwt string
	key nkeys.KeyPair
}

func (o Options) creds() (natsgo.Option, error) {
	file, err := credential.NewFile("KUBERELAY_NATS_CREDS_FILE", o.Logger, func() (userJWT, error) { return loadCreds(o.CredsFile) })
	if err != nil {
		return nil, err
	}
	// A connection asks for the JWT and then for the signature, which has to be of its seed.
	return natsgo.UserJWT(
		func() (string, error) { return file.Get().jwt, nil },
		func(nonce []byte) ([]byte, error) { return file.Last().key.Sign(nonce) },
	), nil
}

// loadCreds never quotes the file's content.
func loadCreds(path string) (userJWT, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return userJWT{}, err
	}
	defer clear(content)
	jwt, err := nkeys.ParseDecoratedJWT(content)
	if err != nil || jwt == "" {
		return userJWT{}, fmt.Errorf("%s holds no user JWT", path)
	}
	pair, err := nkeys.ParseDecoratedUserNKey(content)
	if err != nil {
		return userJWT{}, fmt.Errorf("%s holds no seed of a user's nkey", path)
	}
	return userJWT{jwt, pair}, nil
}

// nkey is of one public key for as long as the process lives: nats.go asks for the
// signature of each connection, but not for whose it is.
func (o Options) nkey() (natsgo.Option, error) {
	public := ""
	file, err := credential.NewFile("KUBERELAY_NATS_NKEY_FILE", o.Logger, func() (nkeys.KeyPair, error) {
		content, err := os.ReadFile(o.NkeyFile)
		if err != nil {
			return nil, err
		}
		defer clear(content)
		pair, err := nkeys.ParseDecoratedUserNKey(content)
		if err != nil {
			return nil, fmt.Errorf("%s holds no seed of a user's nkey", o.NkeyFile)
		}
		switch is, err := pair.PublicKey(); {
		case err != nil:
			return nil, fmt.Errorf("%s holds no seed of a user's nkey", o.NkeyFile)
		case public != "" && is != public:
			return nil, fmt.Errorf("%s holds another key, %s: restart the forwarder to use it", o.NkeyFile, is)
		default:
			public = is
		}
		return pair, nil
	})
	if err != nil {
		return nil, err
	}
	return natsgo.Nkey(public, func(nonce []byte) ([]byte, error) { return file.Get().Sign(nonce) }), nil
}

func (o Options) tls() (natsgo.Option, error) {
	var certificate natsgo.TLSCertHandler
	var roots natsgo.RootCAsHandler
	if o.CAFile != "" {
		file, err := credential.NewFile("KUBERELAY_NATS_TLS_CA_FILE", o.Logger, func() (*x509.CertPool, error) { return credential.Roots(o.CAFile) })
		if err != nil {
			return nil, err
		}
		roots = func() (*x509.CertPool, error) { return file.Get(), nil }
	}
	if o.CertFile != "" || o.KeyFile != "" {
		if o.CertFile == "" || o.KeyFile == "" {
			return nil, errors.New("KUBERELAY_NATS_TLS_CERT_FILE and KUBERELAY_NATS_TLS_KEY_FILE need each other")
		}
		file, err := credential.NewFile("KUBERELAY_NATS_TLS_CERT_FILE and KUBERELAY_NATS_TLS_KEY_FILE", o.Logger,
			func() (*tls.Certificate, error) { return credential.Pair(o.CertFile, o.KeyFile) })
		if err != nil {
			return nil, err
		}
		certificate = func() (tls.Certificate, error) { return *file.Get(), nil }
	}
	return natsgo.ClientTLSConfig(certificate, roots), nil
}

package stream

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

// files returns a watcher of the files that can be rotated.
func (o Options) files() *credential.Watcher {
	return credential.NewWatcher(o.PasswordFile, o.TokenFile, o.CredsFile, o.NkeyFile, o.CAFile, o.CertFile, o.KeyFile)
}

// credentials returns nats.go options for the credential files, which the client reads again at each
// reconnect. credentials reads every file once, so that a missing file is reported before the first
// connect.
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
			return nil, Misconfigured("%w", err)
		}
		opts = append(opts, opt)
	}
	if kinds > 1 {
		return nil, Misconfigured("more than one kind of credentials is configured: " +
			"use one of KUBERELAY_NATS_PASSWORD_FILE, KUBERELAY_NATS_TOKEN_FILE, KUBERELAY_NATS_CREDS_FILE, and KUBERELAY_NATS_NKEY_FILE")
	}
	if o.ServerName != "" { // before the other TLS options, which keep ServerName
		opts = append(opts, natsgo.Secure(&tls.Config{ServerName: o.ServerName, MinVersion: tls.VersionTLS12}))
	}
	if o.CAFile == "" && o.CertFile == "" && o.KeyFile == "" {
		return opts, nil
	}
	opt, err := o.tls()
	if err != nil {
		return nil, Misconfigured("%w", err)
	}
	return append(opts, opt), nil
}

func (o Options) password() (natsgo.Option, error) {
	if o.User == "" || o.PasswordFile == "" {
		return nil, errors.New("KUBERELAY_NATS_USER and KUBERELAY_NATS_PASSWORD_FILE must both be set")
	}
	password, err := credential.NewFile("KUBERELAY_NATS_PASSWORD_FILE", o.Logger, func() (string, error) { return credential.Secret(o.PasswordFile) })
	if err != nil {
		return nil, err
	}
	return natsgo.UserInfoHandler(func() (string, string) { return o.User, password.Get() }), nil
}

func (o Options) token() (natsgo.Option, error) {
	if o.TokenOptional {
		return natsgo.TokenHandler(func() string {
			token, _ := credential.Secret(o.TokenFile) // without a token, the server decides whether it needs one
			return token
		}), nil
	}
	token, err := credential.NewFile("KUBERELAY_NATS_TOKEN_FILE", o.Logger, func() (string, error) { return credential.Secret(o.TokenFile) })
	if err != nil {
		return nil, err
	}
	return natsgo.TokenHandler(token.Get), nil
}

// userJWT is the content of a creds file.
type userJWT struct {
	jwt string
	key nkeys.KeyPair
}

func (o Options) creds() (natsgo.Option, error) {
	file, err := credential.NewFile("KUBERELAY_NATS_CREDS_FILE", o.Logger, func() (userJWT, error) { return loadCreds(o.CredsFile) })
	if err != nil {
		return nil, err
	}
	// For each connection, the client requests the JWT and then a signature, which must be made with
	// the seed that belongs to that JWT.
	return natsgo.UserJWT(
		func() (string, error) { return file.Get().jwt, nil },
		func(nonce []byte) ([]byte, error) { return file.Last().key.Sign(nonce) },
	), nil
}

// loadCreds reads a creds file. Its errors never quote the content of the file.
func loadCreds(path string) (userJWT, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return userJWT{}, err
	}
	defer clear(content)
	jwt, err := nkeys.ParseDecoratedJWT(content)
	if err != nil || jwt == "" {
		return userJWT{}, fmt.Errorf("%s contains no user JWT", path)
	}
	pair, err := nkeys.ParseDecoratedUserNKey(content)
	if err != nil {
		return userJWT{}, fmt.Errorf("%s contains no user nkey seed", path)
	}
	return userJWT{jwt, pair}, nil
}

// nkey returns the option for a user's nkey. The public key stays the same for the lifetime of the
// process, because nats.go requests a signature for each connection, but the public key only once.
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
			return nil, fmt.Errorf("%s contains no user nkey seed", o.NkeyFile)
		}
		switch is, err := pair.PublicKey(); {
		case err != nil:
			return nil, fmt.Errorf("%s contains no user nkey seed", o.NkeyFile)
		case public != "" && is != public:
			return nil, fmt.Errorf("%s contains a different key (public key %s); restart the forwarder to use it", o.NkeyFile, is)
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
			return nil, errors.New("KUBERELAY_NATS_TLS_CERT_FILE and KUBERELAY_NATS_TLS_KEY_FILE must both be set")
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

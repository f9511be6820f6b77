package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/kuberelay/kuberelay/internal/credential"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/oauth"
)

// mechanism authenticates with the current contents of the password file.
type mechanism struct {
	name, user string
	password   *credential.File[string]
}

var _ sasl.Mechanism = (*mechanism)(nil)

func (o Options) sasl(tokens *oauth.Tokens) (sasl.Mechanism, error) {
	switch {
	case o.SASLMechanism == "":
		return nil, nil
	case tokens != nil:
		return bearerMechanism{tokens}, nil
	}
	password, err := credential.NewFile("KUBERELAY_KAFKA_PASSWORD_FILE", o.Logger, func() (string, error) { return credential.Secret(o.PasswordFile) })
	if err != nil {
		return nil, misconfigured("%w", err)
	}
	if o.SASLMechanism == Plain && !o.TLS {
		o.Logger.Warn("password is sent unencrypted: use TLS, or SCRAM instead of PLAIN", "setting", "KUBERELAY_KAFKA_TLS")
	}
	m := &mechanism{name: o.SASLMechanism, user: o.User, password: password}
	// Report a user or password that SCRAM does not allow (RFC 4013) before connecting.
	if _, _, err := m.Start(context.Background()); err != nil {
		return nil, misconfigured("KUBERELAY_KAFKA_USER %q and KUBERELAY_KAFKA_PASSWORD_FILE: %w", o.User, err)
	}
	return m, nil
}

// Name is part of [sasl.Mechanism].
func (m *mechanism) Name() string { return m.name }

// Start is part of [sasl.Mechanism]. It starts the authentication of one connection.
func (m *mechanism) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	password := m.password.Get()
	algorithm := scram.SHA512
	switch m.name {
	case Plain:
		return plain.Mechanism{Username: m.user, Password: password}.Start(ctx)
	case ScramSHA256:
		algorithm = scram.SHA256
	}
	s, err := scram.Mechanism(algorithm, m.user, password)
	if err != nil { // not wrapped, because it may quote the password
		return nil, nil, fmt.Errorf("user or password contains a character that %s does not allow", m.name)
	}
	return s.Start(ctx)
}

// files watches the files that can be rotated.
func (o Options) files() *credential.Watcher {
	return credential.NewWatcher(o.CAFile, o.CertFile, o.KeyFile, o.PasswordFile, o.OAuth.TokenFile)
}

// bearerMechanism authenticates with the current token (RFC 7628).
type bearerMechanism struct{ tokens *oauth.Tokens }

var (
	_ sasl.Mechanism    = bearerMechanism{}
	_ sasl.StateMachine = bearerExchange{}
)

func (o Options) tokens() (*oauth.Tokens, error) {
	if o.SASLMechanism != OAuthBearer {
		return nil, nil
	}
	if !o.TLS {
		o.Logger.Warn("token is sent unencrypted: use TLS", "setting", "KUBERELAY_KAFKA_TLS")
	}
	own := o.OAuth
	own.Logger = o.Logger
	t, err := oauth.New(own)
	if err != nil {
		return nil, misconfigured("%w", err)
	}
	return t, nil
}

// Name is part of [sasl.Mechanism].
func (bearerMechanism) Name() string { return OAuthBearer }

// Start is part of [sasl.Mechanism]. It may fetch a token.
func (m bearerMechanism) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	token, err := m.tokens.Get(ctx)
	if errors.Is(err, oauth.ErrRefused) {
		return nil, nil, misconfigured("%w: check KUBERELAY_KAFKA_OAUTH_CLIENT_ID, KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE and KUBERELAY_KAFKA_OAUTH_SCOPES: %w", err, kafka.SASLAuthenticationFailed)
	}
	if err != nil {
		return nil, nil, err
	}
	return bearerExchange{}, []byte("n,,\x01auth=Bearer " + token + "\x01\x01"), nil
}

type bearerExchange struct{}

// Next is part of [sasl.StateMachine]. A broker that refuses the token says so in a challenge, and
// fails after the client has acknowledged it.
func (bearerExchange) Next(_ context.Context, challenge []byte) (done bool, response []byte, err error) {
	if len(challenge) == 0 {
		return true, nil, nil
	}
	return false, []byte{1}, nil
}

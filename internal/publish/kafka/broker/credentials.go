package broker

import (
	"context"
	"fmt"

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

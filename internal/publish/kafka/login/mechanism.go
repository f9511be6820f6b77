package login

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/kuberelay/kuberelay/internal/credential"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/awsiam"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/oauth"
)

// SASL mechanisms.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
	OAuthBearer = "OAUTHBEARER"
	AWSIAM      = awsiam.Name
)

// Mechanism is a SASL mechanism that can explain a rejection by a broker.
type Mechanism interface {
	sasl.Mechanism
	// Rejected names the credentials that the broker rejected, and what the user should check.
	Rejected() (what, check string)
}

// Renewer is a Mechanism whose credentials expire. Renew reports whether the credentials have
// changed. If so, the caller must replace connections that use the former credentials.
type Renewer interface {
	Renew(ctx context.Context) bool
}

var (
	_, _, _ Mechanism = (*mechanism)(nil), bearerMechanism{}, iamMechanism{}
	_, _    Renewer   = bearerMechanism{}, iamMechanism{}
)

// mechanism authenticates with the current contents of the password file.
type mechanism struct {
	name, user string
	file       string
	password   *credential.File[string]
}

// Password returns a mechanism that uses the current contents of a password file: [Plain],
// [ScramSHA256], or [ScramSHA512].
func Password(name, user, file string, log *slog.Logger) (Mechanism, error) {
	password, err := credential.NewFile("KUBERELAY_KAFKA_PASSWORD_FILE", log, func() (string, error) { return credential.Secret(file) })
	if err != nil {
		return nil, failure.Misconfigured("%w", err)
	}
	m := &mechanism{name: name, user: user, file: file, password: password}
	// Report a user or password that SCRAM does not allow (RFC 4013) before connecting.
	if _, _, err := m.Start(context.Background()); err != nil {
		return nil, failure.Misconfigured("KUBERELAY_KAFKA_USER %q and KUBERELAY_KAFKA_PASSWORD_FILE: %w", user, err)
	}
	return m, nil
}

// Name implements [sasl.Mechanism].
func (m *mechanism) Name() string { return m.name }

// Start implements [sasl.Mechanism]. It starts the authentication of one connection.
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
	if err != nil { // err is not wrapped, because it might quote the password
		return nil, nil, fmt.Errorf("user or password contains a character that %s does not allow", m.name)
	}
	return s.Start(ctx)
}

func (m *mechanism) Rejected() (what, check string) {
	return fmt.Sprintf("user %q with %s", m.user, m.name), fmt.Sprintf("KUBERELAY_KAFKA_USER and the password in %s (KUBERELAY_KAFKA_PASSWORD_FILE)", m.file)
}

// bearerMechanism authenticates with the current token (RFC 7628).
type bearerMechanism struct {
	*oauth.Tokens

	from string // the environment variable that names the token source
}

var _ sasl.StateMachine = bearerExchange{}

// Bearer returns the mechanism [OAuthBearer].
func Bearer(o oauth.Options) (Mechanism, error) {
	t, err := oauth.New(o)
	if err != nil {
		return nil, failure.Misconfigured("%w", err)
	}
	from := "KUBERELAY_KAFKA_OAUTH_TOKEN_FILE"
	if o.TokenURL != "" {
		from = "KUBERELAY_KAFKA_OAUTH_TOKEN_URL"
	}
	return bearerMechanism{t, from}, nil
}

// Name implements [sasl.Mechanism].
func (bearerMechanism) Name() string { return OAuthBearer }

// Start implements [sasl.Mechanism]. It might fetch a token.
func (m bearerMechanism) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	token, err := m.Get(ctx)
	if errors.Is(err, oauth.ErrRefused) {
		return nil, nil, failure.Misconfigured("%w: %w; check KUBERELAY_KAFKA_OAUTH_CLIENT_ID, KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE, and KUBERELAY_KAFKA_OAUTH_SCOPES", kafka.SASLAuthenticationFailed, err)
	}
	if err != nil {
		return nil, nil, err
	}
	return bearerExchange{}, []byte("n,,\x01auth=Bearer " + token + "\x01\x01"), nil
}

func (m bearerMechanism) Rejected() (what, check string) {
	return fmt.Sprintf("the token of %q with %s", cmp.Or(m.Subject(), "an unknown user"), OAuthBearer),
		fmt.Sprintf("that the token from %s is valid now, and has the issuer, the audience, and the scope that the brokers expect", m.from)
}

type bearerExchange struct{}

// Next implements [sasl.StateMachine]. A broker that rejects the token first sends a challenge with
// the reason. After the client acknowledges the challenge, the broker fails the authentication.
func (bearerExchange) Next(_ context.Context, challenge []byte) (done bool, response []byte, err error) {
	if len(challenge) == 0 {
		return true, nil, nil
	}
	return false, []byte{1}, nil
}

// iamMechanism authenticates with AWS credentials.
type iamMechanism struct{ *awsiam.Mechanism }

// IAM returns the mechanism [AWSIAM].
func IAM(o awsiam.Options) (Mechanism, error) {
	m, err := awsiam.New(context.Background(), o)
	if err != nil {
		return nil, failure.Misconfigured("KUBERELAY_KAFKA_SASL_MECHANISM is %s: %w", AWSIAM, err)
	}
	return iamMechanism{m}, nil
}

// Start implements [sasl.Mechanism]. It might fetch credentials.
func (m iamMechanism) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	session, payload, err := m.Mechanism.Start(ctx)
	if errors.Is(err, awsiam.ErrRefused) {
		err = failure.Misconfigured("%w: %w; check that the trust policy of the role names the forwarder's service account", kafka.SASLAuthenticationFailed, err)
	}
	return session, payload, err
}

func (m iamMechanism) Rejected() (what, check string) {
	return fmt.Sprintf("the AWS credentials (%s) for region %s with %s", cmp.Or(m.Source(), "of an unknown source"), m.Region(), AWSIAM),
		"that the IAM policy of the role allows kafka-cluster:Connect on the cluster, that the cluster is in this region (KUBERELAY_KAFKA_AWS_REGION), and that the clock is right"
}

package broker

import (
	"context"
	"errors"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/oauth"
)

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

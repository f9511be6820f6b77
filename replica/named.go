package replica

import "strings"

// options replaces the environment variables in errors of the bus with the fields of this package that
// set the same options. A name precedes its prefixes.
var options = strings.NewReplacer(
	"KUBERELAY_NATS_URL", "NATSOptions.URLs",
	"KUBERELAY_NATS_STREAM", "NATSOptions.Stream",
	"KUBERELAY_NATS_SUBJECT_PREFIX", "NATSOptions.SubjectPrefix",
	"KUBERELAY_NATS_USER", "NATSOptions.User",
	"KUBERELAY_NATS_PASSWORD_FILE", "NATSOptions.PasswordFile",
	"KUBERELAY_NATS_TOKEN_FILE", "NATSOptions.TokenFile",
	"KUBERELAY_NATS_CREDS_FILE", "NATSOptions.CredsFile",
	"KUBERELAY_NATS_NKEY_FILE", "NATSOptions.NkeyFile",
	"KUBERELAY_NATS_TLS_CA_FILE", "NATSOptions.CAFile",
	"KUBERELAY_NATS_TLS_CERT_FILE", "NATSOptions.CertFile",
	"KUBERELAY_NATS_TLS_KEY_FILE", "NATSOptions.KeyFile",
	"KUBERELAY_NATS_TLS_SERVER_NAME", "NATSOptions.ServerName",
	"KUBERELAY_NATS_JETSTREAM_DOMAIN", "NATSOptions.Domain",
	"KUBERELAY_KAFKA_BROKERS", "KafkaOptions.Brokers",
	"KUBERELAY_KAFKA_TOPIC", "KafkaOptions.Topic",
	"KUBERELAY_KAFKA_TLS_CA_FILE", "KafkaOptions.CAFile",
	"KUBERELAY_KAFKA_TLS_CERT_FILE", "KafkaOptions.CertFile",
	"KUBERELAY_KAFKA_TLS_KEY_FILE", "KafkaOptions.KeyFile",
	"KUBERELAY_KAFKA_TLS_SERVER_NAME", "KafkaOptions.ServerName",
	"KUBERELAY_KAFKA_TLS", "KafkaOptions.TLS",
	"KUBERELAY_KAFKA_SASL_MECHANISM", "KafkaOptions.SASLMechanism",
	"KUBERELAY_KAFKA_OAUTH_TOKEN_FILE", "KafkaOptions.OAuth.TokenFile",
	"KUBERELAY_KAFKA_OAUTH_TOKEN_URL", "KafkaOptions.OAuth.TokenURL",
	"KUBERELAY_KAFKA_OAUTH_CLIENT_ID", "KafkaOptions.OAuth.ClientID",
	"KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE", "KafkaOptions.OAuth.SecretFile",
	"KUBERELAY_KAFKA_OAUTH_SCOPES", "KafkaOptions.OAuth.Scopes",
	"KUBERELAY_KAFKA_OAUTH_AUDIENCE", "KafkaOptions.OAuth.Audience",
	"KUBERELAY_KAFKA_OAUTH_CA_FILE", "KafkaOptions.OAuth.CAFile",
	"KUBERELAY_KAFKA_AWS_REGION", "KafkaOptions.AWSRegion",
	"KUBERELAY_KAFKA_USER", "KafkaOptions.User",
	"KUBERELAY_KAFKA_PASSWORD_FILE", "KafkaOptions.PasswordFile",
)

// namedError is an error whose text names options instead of variables.
type namedError struct{ error }

func (e namedError) Error() string { return options.Replace(e.error.Error()) }

func (e namedError) Unwrap() error { return e.error }

func named(err error) error {
	if err == nil {
		return nil
	}
	return namedError{err}
}

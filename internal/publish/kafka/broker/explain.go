package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
)

// isStale reports whether an error shows that the metadata is, or might be, stale. Two of the
// codes are less obvious. kafka-go returns Unknown (-1) if one of several requests that it
// combines fails. A leader that is cut off from the other brokers responds with
// RequestTimedOut, because it does not know that another broker is now the leader.
func isStale(err error) bool {
	var code kafka.Error
	if !errors.As(err, &code) {
		return false
	}
	switch code {
	case kafka.Unknown, kafka.UnknownTopicOrPartition, kafka.LeaderNotAvailable, kafka.NotLeaderForPartition,
		kafka.BrokerNotAvailable, kafka.ReplicaNotAvailable, kafka.NotController, kafka.KafkaStorageError, kafka.ListenerNotFound,
		kafka.FencedLeaderEpoch, kafka.UnknownLeaderEpoch, kafka.UnknownTopicID, kafka.InconsistentTopicID, kafka.RequestTimedOut:
		return true
	}
	return false
}

// isUnknownTopic reports whether err means that the topic or the partition is unknown to a broker
// or to kafka-go.
func isUnknownTopic(err error) bool {
	return errors.Is(err, kafka.UnknownTopicOrPartition) || errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition)
}

// explain adds the destination of a request to its error, and the fix if it is known.
func (t *transport) explain(err error) error {
	var code kafka.Error
	var network *net.OpError
	where := "kafka at " + t.opts.brokers()
	errors.As(err, &network)
	switch {
	case errors.Is(err, failure.ErrMisconfigured), failure.IsUnavailable(err):
		return err // the error already names the problem
	case errors.As(err, &code) && failure.KindOf(err) == failure.Denied:
		return t.explainAuthentication(code, err)
	case network != nil && network.Op == "remote error":
		return failure.Misconfigured("%s rejected the TLS handshake: %w: check KUBERELAY_KAFKA_TLS_CERT_FILE and KUBERELAY_KAFKA_TLS_KEY_FILE, "+
			"because the broker may require a client certificate", where, err)
	case failure.KindOf(err) == failure.Never && !errors.Is(err, protocol.ErrNoRecord) && !errors.Is(err, failure.ErrClosed) && failure.IsTLS(err):
		return failure.Misconfigured("%w", err)
	case errors.Is(err, context.Canceled):
		return err
	case failure.IsTimeout(err) && (network == nil || network.Op != "dial"):
		return fmt.Errorf("%s did not respond in time: %w%s", where, err, t.notKafkaHint())
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s closed the connection: %w%s", where, err, t.hangUpHint())
	}
	return err
}

// hangUpHint guesses why a broker closes a connection before its first response.
func (t *transport) hangUpHint() string {
	switch {
	case t.reached.Load():
		return ""
	case !t.opts.TLS:
		return " (that port may require KUBERELAY_KAFKA_TLS=true, or KUBERELAY_KAFKA_SASL_MECHANISM)"
	case t.opts.SASLMechanism == "":
		return " (that port may require KUBERELAY_KAFKA_SASL_MECHANISM, or a certificate: KUBERELAY_KAFKA_TLS_CERT_FILE)"
	}
	return ""
}

// notKafkaHint says why no broker has responded. kafka-go retries a failed connection and does not
// report the error.
func (t *transport) notKafkaHint() string {
	if t.reached.Load() || !t.notKafka.Load() {
		return ""
	}
	return " (another server responds: check the host and the port)"
}

// explainAuthentication describes a failed authentication and the setting to check.
func (t *transport) explainAuthentication(code kafka.Error, err error) error {
	where := "kafka at " + t.opts.brokers()
	if code == kafka.SASLAuthenticationFailed {
		what, check := t.auth.Rejected()
		return failure.Misconfigured("%s rejected %s: %w: check %s", where, what, err, check)
	}
	return failure.Misconfigured("%s does not support the SASL mechanism %q: %w: set KUBERELAY_KAFKA_SASL_MECHANISM to one that the port supports",
		where, t.opts.SASLMechanism, err)
}

// principal returns the user that the brokers see, as far as the client can tell. Brokers can
// map the subject of a certificate to a shorter name (ssl.principal.mapping.rules).
func (t *transport) principal() string {
	if m, ok := t.auth.(interface{ Subject() string }); ok {
		return "User:" + cmp.Or(m.Subject(), "PRINCIPAL")
	}
	switch {
	case t.opts.User != "":
		return "User:" + t.opts.User
	case t.opts.CertFile != "":
		if pair, err := tls.LoadX509KeyPair(t.opts.CertFile, t.opts.KeyFile); err == nil && pair.Leaf != nil {
			return "User:" + pair.Leaf.Subject.String()
		}
	}
	return "User:ANONYMOUS"
}

package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/awsiam"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/oauth"
)

// Kind classifies an error by the reaction that it calls for.
type Kind int

// The kinds of errors.
const (
	// Never means that a retry cannot succeed, for example after a malformed request, a wrong
	// setting, or a rejected batch.
	Never Kind = iota
	// Retry means that the problem is temporary: no leader, no connection, no response in time, too
	// few replicas, a full disk, or throttling. The batch may or may not be stored.
	Retry
	// Duplicate means that the partition already contains a later sequence than that of the batch.
	// The batch is stored, but the broker no longer knows its offset, because it remembers only the
	// last five batches of a producer.
	Duplicate
	// OutOfOrder means that the broker and the producer disagree on what was written. Code 45 is a
	// gap in the sequence. With code 59, the broker has forgotten the producer in the partition,
	// after producer.id.expiration.ms or when the producer's records were deleted. With code 49,
	// the broker has forgotten the transactional ID, after transactional.id.expiration.ms. The
	// batch is not stored. Read the log before you continue with a new epoch.
	OutOfOrder
	// Fenced means that another writer took the transactional ID (47, 90).
	Fenced
	// Denied means that an ACL is missing, or that the broker rejected the credentials. The error
	// names the problem and the fix, and has [ErrMisconfigured] in its chain.
	Denied
	// TooLarge means that a record or batch exceeds max.message.bytes of the topic (10) or the
	// segment size (18). The batch is not stored.
	TooLarge
)

func (k Kind) String() string {
	names := [...]string{"never", "retry", "duplicate", "out_of_order", "fenced", "denied", "too_large"}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return names[k]
}

// KindOf classifies an error of this package or of kafka-go. A context that ended is Retry,
// because it says nothing about the cluster. err must not be nil.
func KindOf(err error) Kind {
	var code kafka.Error
	var network *net.OpError
	switch {
	case errors.As(err, &code):
		return kindOfCode(code)
	case errors.As(err, &network) && network.Op == "remote error": // a TLS alert from the broker
		return Denied
	case errors.Is(err, ErrMisconfigured), errors.Is(err, errClosed):
		return Never
	case isClientSide(err), isConnection(err), isUnavailable(err), errors.Is(err, context.Canceled), isTimeout(err):
		return Retry
	}
	return Never
}

// isClientSide reports whether kafka-go's metadata has no destination for a request, or a
// response does not match its request.
func isClientSide(err error) bool {
	var client protocol.Error
	return errors.As(err, &client) && client != protocol.ErrNoRecord
}

// isConnection reports whether err means that a connection failed or broke, other than a TLS failure.
func isConnection(err error) bool {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	if errors.As(err, &certificate) || errors.As(err, &record) {
		return false
	}
	var network net.Error
	var number syscall.Errno
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &network) || errors.As(err, &number)
}

// isUnavailable reports whether the source of tokens or AWS credentials currently provides none.
func isUnavailable(err error) bool {
	return errors.Is(err, oauth.ErrUnavailable) || errors.Is(err, awsiam.ErrUnavailable)
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// isStale reports whether an error shows that the metadata is, or may be, stale. Two of the
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

// isUnknownTopic reports whether a broker or kafka-go did not know the topic or the
// partition.
func isUnknownTopic(err error) bool {
	return errors.Is(err, kafka.UnknownTopicOrPartition) || errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition)
}

func isNoTopic(err error) bool { return errors.Is(err, ErrNoTopic) }

func isPastEnd(err error) bool { return errors.Is(err, ErrPastEnd) }

// explain adds the destination of a request to its error, and the fix if it is known.
func (t *transport) explain(err error) error {
	var code kafka.Error
	var network *net.OpError
	where := "kafka at " + t.opts.brokers()
	errors.As(err, &network)
	switch {
	case errors.Is(err, ErrMisconfigured), isUnavailable(err):
		return err // the error already names the problem
	case errors.As(err, &code) && kindOfCode(code) == Denied:
		return t.explainAuthentication(code, err)
	case network != nil && network.Op == "remote error":
		return misconfigured("%s rejected the TLS handshake: %w: check KUBERELAY_KAFKA_TLS_CERT_FILE and KUBERELAY_KAFKA_TLS_KEY_FILE, "+
			"because it may require a client certificate", where, err)
	case KindOf(err) == Never && !errors.Is(err, protocol.ErrNoRecord) && !errors.Is(err, errClosed) && isTLS(err):
		return misconfigured("%w", err)
	case errors.Is(err, context.Canceled):
		return err
	case isTimeout(err) && (network == nil || network.Op != "dial"):
		return fmt.Errorf("%s did not respond in time: %w", where, err)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s closed the connection: %w%s", where, err, t.hangUpHint())
	}
	return err
}

func isTLS(err error) bool {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &certificate) || errors.As(err, &record)
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

// explainAuthentication describes a failed authentication and the setting to check.
func (t *transport) explainAuthentication(code kafka.Error, err error) error {
	where := "kafka at " + t.opts.brokers()
	if code == kafka.SASLAuthenticationFailed {
		what, check := t.auth.rejected()
		return misconfigured("%s rejected %s: %w: check %s", where, what, err, check)
	}
	return misconfigured("%s does not support the SASL mechanism %q: %w: set KUBERELAY_KAFKA_SASL_MECHANISM to one that the port supports",
		where, t.opts.SASLMechanism, err)
}

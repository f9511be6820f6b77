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
)

// Kind is what a failure calls for.
type Kind int

// The kinds of failure.
const (
	// Never is what a retry does not cure: a broken request, a setting, a refused batch.
	Never Kind = iota
	// Retry is what passes: no leader, no connection, no answer in time, not enough
	// replicas, a full disk, throttling. After it a batch may or may not be stored.
	Retry
	// Duplicate is a batch whose sequence the partition has gone past. It is stored, but
	// the broker, which remembers a producer's last five batches, no longer knows where.
	Duplicate
	// OutOfOrder says that the broker and the producer disagree on what was written: a
	// gap in the sequence (45), or the broker has forgotten the producer in the partition
	// (59, after producer.id.expiration.ms or when its records were deleted) or the
	// transactional id (49, after transactional.id.expiration.ms). Nothing is stored;
	// what is in the log must be looked at before a new epoch goes on.
	OutOfOrder
	// Fenced says that another writer has taken the transactional id (47, 90).
	Fenced
	// Denied is a missing ACL or refused credentials. The error names it and the remedy;
	// [ErrMisconfigured] is in its chain.
	Denied
	// TooLarge is a record or batch over the topic's max.message.bytes (10) or over the
	// segment's size (18). Nothing is stored.
	TooLarge
)

func (k Kind) String() string {
	names := [...]string{"never", "retry", "duplicate", "out_of_order", "fenced", "denied", "too_large"}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return names[k]
}

// KindOf classifies an error of this package or of kafka-go. Of the end of a context it
// says Retry: it tells nothing of the cluster. Nil has no kind; do not ask.
func KindOf(err error) Kind {
	var code kafka.Error
	var network *net.OpError
	switch {
	case errors.As(err, &code):
		return kindOfCode(code)
	case errors.As(err, &network) && network.Op == "remote error": // a TLS alert of the broker
		return Denied
	case errors.Is(err, ErrMisconfigured), errors.Is(err, errClosed):
		return Never
	case isClientSide(err), isConnection(err), errors.Is(err, context.Canceled), isTimeout(err):
		return Retry
	}
	return Never
}

// isClientSide tells what kafka-go says when its metadata has no place to send a request
// to, or an answer is not that to the request.
func isClientSide(err error) bool {
	var client protocol.Error
	return errors.As(err, &client) && client != protocol.ErrNoRecord
}

// isConnection tells a connection that was not made, or broke.
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

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// isStale tells answers that show our metadata to be old, or may: unknown (-1) is also
// what kafka-go makes of one failed request of several that it joins.
func isStale(err error) bool {
	var code kafka.Error
	if !errors.As(err, &code) {
		return false
	}
	switch code {
	case kafka.Unknown, kafka.UnknownTopicOrPartition, kafka.LeaderNotAvailable, kafka.NotLeaderForPartition,
		kafka.BrokerNotAvailable, kafka.ReplicaNotAvailable, kafka.NotController, kafka.KafkaStorageError, kafka.ListenerNotFound,
		kafka.FencedLeaderEpoch, kafka.UnknownLeaderEpoch, kafka.UnknownTopicID, kafka.InconsistentTopicID:
		return true
	}
	return false
}

// isUnknownTopic tells that somebody, a broker or kafka-go, did not know the topic or the
// partition.
func isUnknownTopic(err error) bool {
	return errors.Is(err, kafka.UnknownTopicOrPartition) || errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition)
}

func isNoTopic(err error) bool { return errors.Is(err, ErrNoTopic) }

func isPastEnd(err error) bool { return errors.Is(err, ErrPastEnd) }

// explain adds to what a request came to where it was sent, and what to do about it.
func (t *transport) explain(err error) error {
	var code kafka.Error
	var network *net.OpError
	where := "kafka at " + t.opts.brokers()
	errors.As(err, &network)
	switch {
	case errors.As(err, &code) && kindOfCode(code) == Denied:
		return t.refused(code, err)
	case network != nil && network.Op == "remote error":
		return misconfigured("%s refuses our side of TLS: %w: check KUBERELAY_KAFKA_TLS_CERT_FILE and KUBERELAY_KAFKA_TLS_KEY_FILE, "+
			"which it may ask for", where, err)
	case KindOf(err) == Never && !errors.Is(err, protocol.ErrNoRecord) && !errors.Is(err, errClosed) && isTLS(err):
		return misconfigured("%w", err)
	case errors.Is(err, context.Canceled):
		return err
	case isTimeout(err) && (network == nil || network.Op != "dial"):
		return fmt.Errorf("%s has not answered in time: %w", where, err)
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

// hangUpHint guesses why a broker hangs up on somebody that it has never answered.
func (t *transport) hangUpHint() string {
	switch {
	case t.reached.Load():
		return ""
	case !t.opts.TLS:
		return " (that port may want KUBERELAY_KAFKA_TLS=true, or KUBERELAY_KAFKA_SASL_MECHANISM)"
	case t.opts.SASLMechanism == "":
		return " (that port may want KUBERELAY_KAFKA_SASL_MECHANISM, or a certificate: KUBERELAY_KAFKA_TLS_CERT_FILE)"
	}
	return ""
}

// refused says what to do where authentication failed.
func (t *transport) refused(code kafka.Error, err error) error {
	where := "kafka at " + t.opts.brokers()
	if code == kafka.SASLAuthenticationFailed {
		return misconfigured("%s refuses the user %q by %s: %w: check KUBERELAY_KAFKA_USER and the password in %s (KUBERELAY_KAFKA_PASSWORD_FILE)",
			where, t.opts.User, t.opts.SASLMechanism, err, t.opts.PasswordFile)
	}
	return misconfigured("%s refuses to authenticate us by %q: %w: set KUBERELAY_KAFKA_SASL_MECHANISM to what that port offers",
		where, t.opts.SASLMechanism, err)
}

package failure

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

// ErrMisconfigured is wrapped by errors that a retry cannot fix, for example because of a malformed
// address, a missing file, rejected credentials, a missing permission, or a topic with wrong
// settings. Such an error names the problem and the fix.
var ErrMisconfigured = errors.New("kafka is misconfigured")

// ErrClosed means that the client was closed.
var ErrClosed = errors.New("the client is closed")

// Misconfigured returns an error that a retry cannot fix.
func Misconfigured(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrMisconfigured, fmt.Errorf(format, args...))
}

// Kind classifies an error by the reaction that it calls for.
type Kind int

// The kinds of errors.
const (
	// Never means that a retry cannot succeed, for example after a malformed request, a wrong
	// setting, or a rejected batch.
	Never Kind = iota
	// Retry means that the problem is temporary: no leader, no connection, no response in time, too
	// few replicas, a full disk, or throttling. The batch might or might not be stored.
	Retry
	// Duplicate means that the partition already contains a later sequence number than the batch's.
	// The batch is stored, but the broker no longer knows its offset, because it remembers only the
	// last five batches of a producer.
	Duplicate
	// OutOfOrder means that the broker and the producer disagree on what was written. Code 45 is a
	// gap in the sequence numbers. With code 59, the broker has forgotten the producer in the
	// partition, after producer.id.expiration.ms or when the producer's records were deleted. With
	// code 49, the broker has forgotten the transactional ID, after transactional.id.expiration.ms.
	// The batch is not stored. Read the log before you continue with a new epoch.
	OutOfOrder
	// Fenced means that another writer took the transactional ID (47, 90).
	Fenced
	// Denied means that an ACL is missing, or that the broker rejected the credentials. The error
	// names the problem and the fix, and wraps [ErrMisconfigured].
	Denied
	// TooLarge means that a record or batch exceeds max.message.bytes of the topic (10) or the
	// segment size (18). The batch is not stored.
	TooLarge
)

// KindOf classifies an error of a request to the brokers. A context that ended is Retry,
// because it says nothing about the cluster. err must not be nil.
func KindOf(err error) Kind {
	var code kafka.Error
	var network *net.OpError
	switch {
	case errors.As(err, &code):
		return kindOfCode(code)
	case errors.As(err, &network) && network.Op == "remote error": // a TLS alert from the broker
		return Denied
	case errors.Is(err, ErrMisconfigured), errors.Is(err, ErrClosed):
		return Never
	case isClientSide(err), isConnection(err), IsUnavailable(err), errors.Is(err, context.Canceled), IsTimeout(err):
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
	if IsTLS(err) {
		return false
	}
	var network net.Error
	var number syscall.Errno
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &network) || errors.As(err, &number)
}

// IsUnavailable reports whether the source of tokens or AWS credentials currently provides none.
func IsUnavailable(err error) bool {
	return errors.Is(err, oauth.ErrUnavailable) || errors.Is(err, awsiam.ErrUnavailable)
}

// IsTimeout reports whether a request took too long.
func IsTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// IsTLS reports whether a TLS handshake failed in this process.
func IsTLS(err error) bool {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &certificate) || errors.As(err, &record)
}

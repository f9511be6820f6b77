package stream

import (
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// ErrMisconfigured is wrapped by errors that a retry cannot fix, for example because of a malformed
// URL, a missing file, rejected credentials, or a stream with wrong settings. Such an error names
// the problem and the fix.
var ErrMisconfigured = errors.New("nats is misconfigured")

// Misconfigured returns an error that a retry cannot fix.
func Misconfigured(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrMisconfigured, fmt.Errorf(format, args...))
}

// ErrMissing means that the stream does not exist.
var ErrMissing = fmt.Errorf("the stream %w", publish.ErrMissing)

// Publish results that are specific to NATS.
const (
	ResultFull         publish.Result = "full"
	ResultDisconnected publish.Result = "disconnected"
	ResultNoStream     publish.Result = "no_stream"
)

// Errors that requests return.
var (
	ErrClosed   = publish.Failure(publish.ResultClosed, errors.New("the client is closed: the message might or might not be stored"))
	ErrNoStream = publish.Failure(ResultNoStream, errors.New("no stream responded: it does not exist, or has no leader at the moment"))
	ErrNoLeader = publish.Failure(ResultNoStream, errors.New("the stream has no leader: too few of its replicas are reachable"))
)

// Error codes of the server for which the client has no constant (nats-server,
// jetstream_errors_generated.go).
const (
	codeAccountExceeded     jetstream.ErrorCode = 10002
	codeInsufficient        jetstream.ErrorCode = 10023
	codeMaximumStreams      jetstream.ErrorCode = 10027
	codeMemoryExceeded      jetstream.ErrorCode = 10028
	codeStorageExceeded     jetstream.ErrorCode = 10047
	codeInvalidStreamConfig jetstream.ErrorCode = 10052
	codeSubjectOverlap      jetstream.ErrorCode = 10065
	codeStoreFailed         jetstream.ErrorCode = 10077
	codeHeadersTooLarge     jetstream.ErrorCode = 10097
	codeMaxBytesRequired    jetstream.ErrorCode = 10113
)

// APIFailure classifies an API error of the server.
func APIFailure(err *jetstream.APIError) error {
	switch err.ErrorCode {
	case jetstream.JSErrCodeStreamMessageExceedsMaximum, codeHeadersTooLarge:
		return fmt.Errorf("%w: %w", publish.ErrTooLarge, err)
	case jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return publish.Failure(publish.ResultBusy, fmt.Errorf("another message of the object is being stored: %w", err))
	case codeAccountExceeded:
		return publish.Failure(ResultFull, fmt.Errorf("the account has no room; raise its storage limit (max_file of the account's jetstream block, or nsc edit account --js-disk-storage): %w", err))
	case codeStoreFailed, codeInsufficient, codeMemoryExceeded, codeStorageExceeded:
		return publish.Failure(ResultFull, fmt.Errorf("the stream has no room; raise its limits (max_bytes, max_msgs) or the server's storage: %w", err))
	case jetstream.JSErrCodeStreamNotFound:
		return publish.Failure(ResultNoStream, err)
	}
	return err
}

// IsNoResponders reports whether the server responded that the subject has no subscribers.
func IsNoResponders(msg *natsgo.Msg) bool {
	return len(msg.Data) == 0 && msg.Header.Get("Status") == "503"
}

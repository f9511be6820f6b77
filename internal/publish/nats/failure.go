package nats

import (
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/outcome"
)

// How a publish ends on this bus only.
const (
	resultFull         outcome.Result = "full"
	resultDisconnected outcome.Result = "disconnected"
	resultNoStream     outcome.Result = "no_stream"
)

var (
	errTimeout  = outcome.Failure(outcome.Timeout, errors.New("no acknowledgement in time: it may or may not be stored"))
	errLost     = outcome.Failure(resultDisconnected, errors.New("the connection broke before the acknowledgement: it may or may not be stored"))
	errOffline  = outcome.Failure(resultDisconnected, errors.New("not connected"))
	errNoStream = outcome.Failure(resultNoStream, errors.New("no stream answered: it does not exist, or has no leader at the moment"))
	errClosed   = outcome.Failure(outcome.Closed, errors.New("the bus is closed: it may or may not be stored"))
)

// sendFailure classifies what the client said to a publish that it did not send.
func (b *Bus) sendFailure(err error, msg *natsgo.Msg) error {
	switch {
	case errors.Is(err, natsgo.ErrMaxPayload):
		return fmt.Errorf("%w: %d bytes with headers, the server takes %d", publish.ErrTooLarge, payloadSize(msg), b.nc.MaxPayload())
	case errors.Is(err, natsgo.ErrReconnectBufExceeded):
		return errOffline
	case errors.Is(err, natsgo.ErrConnectionClosed):
		return errClosed
	}
	return err
}

// payloadSize is what the server's max_payload limits: headers and data.
func payloadSize(msg *natsgo.Msg) int {
	return msg.Size() - len(msg.Subject) - len(msg.Reply)
}

// Error codes of the server that the client has no name for
// (nats-server, jetstream_errors_generated.go).
const (
	codeNoPeers             jetstream.ErrorCode = 10005
	codeInsufficient        jetstream.ErrorCode = 10023
	codeMemoryExceeded      jetstream.ErrorCode = 10028
	codeStorageExceeded     jetstream.ErrorCode = 10047
	codeInvalidStreamConfig jetstream.ErrorCode = 10052
	codeSubjectOverlap      jetstream.ErrorCode = 10065
	codeReplicasUnsupported jetstream.ErrorCode = 10074
	codeStoreFailed         jetstream.ErrorCode = 10077
	codeHeadersTooLarge     jetstream.ErrorCode = 10097
)

// apiFailure classifies a refusal by the server.
func apiFailure(err *jetstream.APIError) error {
	switch err.ErrorCode {
	case jetstream.JSErrCodeStreamMessageExceedsMaximum, codeHeadersTooLarge:
		return fmt.Errorf("%w: %w", publish.ErrTooLarge, err)
	case jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return outcome.Failure(outcome.Busy, fmt.Errorf("another message of the object is being stored: %w", err))
	case codeStoreFailed, codeInsufficient, codeMemoryExceeded, codeStorageExceeded:
		return outcome.Failure(resultFull, fmt.Errorf("the stream has no room; raise its limits (max_bytes, max_msgs) or the server's storage: %w", err))
	case jetstream.JSErrCodeStreamNotFound:
		return outcome.Failure(resultNoStream, err)
	}
	return err
}

// isNoResponders tells the server's answer that nobody listens on the subject.
func isNoResponders(msg *natsgo.Msg) bool {
	return len(msg.Data) == 0 && msg.Header.Get("Status") == "503"
}

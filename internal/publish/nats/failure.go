package nats

import (
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// result is how a publish ended, as the metric's label.
type result string

const (
	resultStored        result = "stored"
	resultAlreadyStored result = "already_stored" // an earlier attempt had landed
	resultConflict      result = "conflict"
	resultTooLarge      result = "too_large"
	resultBusy          result = "busy"
	resultFull          result = "full"
	resultTimeout       result = "timeout"
	resultDisconnected  result = "disconnected"
	resultNoStream      result = "no_stream"
	resultNotReady      result = "not_ready"
	resultClosed        result = "closed"
	resultCancelled     result = "cancelled"
	resultError         result = "error"
)

var results = []result{
	resultStored, resultAlreadyStored, resultConflict, resultTooLarge, resultBusy, resultFull, resultTimeout,
	resultDisconnected, resultNoStream, resultNotReady, resultClosed, resultCancelled, resultError,
}

// failure is an error with the result that it counts as.
type failure struct {
	result result
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

var (
	errTimeout  = &failure{resultTimeout, errors.New("no acknowledgement in time: it may or may not be stored")}
	errLost     = &failure{resultDisconnected, errors.New("the connection broke before the acknowledgement: it may or may not be stored")}
	errOffline  = &failure{resultDisconnected, errors.New("not connected")}
	errNoStream = &failure{resultNoStream, errors.New("no stream answered: it does not exist, or has no leader at the moment")}
	errClosed   = &failure{resultClosed, errors.New("the bus is closed: it may or may not be stored")}
)

// resultOf classifies an error that the code of this package made.
func resultOf(err error) result {
	var f *failure
	var conflict *publish.ConflictError
	switch {
	case err == nil:
		return resultStored
	case errors.As(err, &conflict):
		return resultConflict
	case errors.Is(err, publish.ErrTooLarge):
		return resultTooLarge
	case errors.As(err, &f):
		return f.result
	}
	return resultError
}

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
	return &failure{resultError, err}
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
		return &failure{resultBusy, fmt.Errorf("another message of the object is being stored: %w", err)}
	case codeStoreFailed, codeInsufficient, codeMemoryExceeded, codeStorageExceeded:
		return &failure{resultFull, fmt.Errorf("the stream has no room; raise its limits (max_bytes, max_msgs) or the server's storage: %w", err)}
	case jetstream.JSErrCodeStreamNotFound:
		return &failure{resultNoStream, err}
	}
	return &failure{resultError, err}
}

// isNoResponders tells the server's answer that nobody listens on the subject.
func isNoResponders(msg *natsgo.Msg) bool {
	return len(msg.Data) == 0 && msg.Header.Get("Status") == "503"
}

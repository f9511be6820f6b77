package kafka

import (
	"errors"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// ErrMisconfigured is in the chain of errors that waiting does not cure.
var ErrMisconfigured = broker.ErrMisconfigured

// result is how a publish ended, as the metric's label.
type result string

const (
	resultStored        result = "stored"
	resultAlreadyStored result = "already_stored" // an earlier attempt had landed
	resultConflict      result = "conflict"
	resultTooLarge      result = "too_large"
	resultBusy          result = "busy"
	resultDenied        result = "denied"
	resultTimeout       result = "timeout"
	resultNotReady      result = "not_ready"
	resultClosed        result = "closed"
	resultCancelled     result = "cancelled"
	resultError         result = "error"
)

var results = []result{
	resultStored, resultAlreadyStored, resultConflict, resultTooLarge, resultBusy, resultDenied, resultTimeout,
	resultNotReady, resultClosed, resultCancelled, resultError,
}

// failure is an error with the result that it counts as.
type failure struct {
	result result
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

var (
	errTimeout = &failure{resultTimeout, errors.New("no acknowledgement in time: it may or may not be stored")}
	errWaited  = &failure{resultTimeout, errors.New("it has waited for its turn for too long")}
	errBusy    = &failure{resultBusy, errors.New("an earlier event of the object awaits its acknowledgement")}
	errOpening = &failure{resultNotReady, errors.New("its topic is being opened")}
	errClosed  = &failure{resultClosed, errStopped}
)

// failureOf gives an error of a lane its result.
func failureOf(err error) error {
	var f *failure
	switch {
	case errors.As(err, &f), errors.Is(err, publish.ErrTooLarge):
		return err
	case errors.Is(err, errStopped):
		return &failure{resultClosed, err}
	case broker.KindOf(err) == broker.Denied:
		return &failure{resultDenied, err}
	}
	return &failure{resultError, err}
}

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

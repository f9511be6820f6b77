package kafka

import (
	"errors"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/outcome"
)

// ErrMisconfigured is in the chain of errors that waiting does not cure.
var ErrMisconfigured = broker.ErrMisconfigured

// resultDenied is how a publish ends on this bus only.
const resultDenied outcome.Result = "denied"

var (
	errTimeout = outcome.Failure(outcome.Timeout, errors.New("no acknowledgement in time: it may or may not be stored"))
	errWaited  = outcome.Failure(outcome.Timeout, errors.New("it has waited for its turn for too long"))
	errBusy    = outcome.Failure(outcome.Busy, errors.New("an earlier event of the object awaits its acknowledgement"))
	errOpening = outcome.Failure(outcome.NotReady, errors.New("its topic is being opened"))
	errClosed  = outcome.Failure(outcome.Closed, errStopped)
)

// failureOf gives an error of a lane its result.
func failureOf(err error) error {
	switch {
	case errors.Is(err, errStopped):
		return outcome.Failure(outcome.Closed, err)
	case broker.KindOf(err) == broker.Denied:
		return outcome.Failure(resultDenied, err)
	}
	return err
}

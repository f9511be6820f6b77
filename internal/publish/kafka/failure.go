package kafka

import (
	"errors"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
)

// ErrMisconfigured is wrapped by errors that a retry cannot fix.
var ErrMisconfigured = failure.ErrMisconfigured

// resultDenied is the only result that is specific to Kafka.
const resultDenied publish.Result = "denied"

var (
	errTimeout       = publish.Failure(publish.ResultTimeout, errors.New("no acknowledgement in time: the message might be stored"))
	errWaited        = publish.Failure(publish.ResultTimeout, errors.New("not sent in time: the partition was waiting for the acknowledgement of earlier batches or of checkpoint records"))
	errBusy          = publish.Failure(publish.ResultBusy, errors.New("an earlier event of the object awaits its acknowledgement"))
	errPartitionBusy = publish.Failure(publish.ResultBusy, errors.New("the partition reached its in-flight limit, or does not acknowledge"))
	errOpening       = publish.Failure(publish.ResultNotReady, errors.New("the topic is being opened"))
	errClosed        = publish.Failure(publish.ResultClosed, errStopped)
)

// maybeStored hides the [publish.ErrNotSent] that an error wraps. If the failure of an unsent record ends the
// session, the session's other records fail with the same error, and they might be stored.
type maybeStored struct{ error }

// Is supports [errors.Is].
func (e maybeStored) Is(target error) bool {
	return target != publish.ErrNotSent && errors.Is(e.error, target)
}

// As supports [errors.As].
func (e maybeStored) As(target any) bool { return errors.As(e.error, target) }

// failureOf adds the publish result to an error of a sender.
func failureOf(err error) error {
	switch {
	case errors.Is(err, errStopped):
		return publish.Failure(publish.ResultClosed, err)
	case failure.KindOf(err) == failure.Denied:
		return publish.Failure(resultDenied, err)
	}
	return err
}

package publish

import (
	"bytes"
	"errors"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Result is the outcome of a publish, used as a metric label. A bus can define additional
// results.
type Result string

// The results of every bus.
const (
	ResultStored        Result = "stored"
	ResultAlreadyStored Result = "already_stored" // stored by an earlier attempt
	ResultConflict      Result = "conflict"
	ResultTooLarge      Result = "too_large"
	ResultBusy          Result = "busy"
	ResultTimeout       Result = "timeout"
	ResultNotReady      Result = "not_ready"
	ResultClosed        Result = "closed"
	ResultCancelled     Result = "cancelled"
	ResultError         Result = "error" // any other error
)

func commonResults() []Result {
	return []Result{
		ResultStored, ResultAlreadyStored, ResultConflict, ResultTooLarge, ResultBusy,
		ResultTimeout, ResultNotReady, ResultClosed, ResultCancelled, ResultError,
	}
}

// failure is an error that carries the result of a publish.
type failure struct {
	result Result
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Failure returns err with the given result, for [ResultOf].
func Failure(r Result, err error) error { return &failure{r, err} }

// ResultOf returns the result of a publish that ended with err. If err is nil, the result is
// ResultStored. A [ConflictError] and [ErrTooLarge] have their own results, which take precedence
// over the result of [Failure]. Any other error is ResultError.
func ResultOf(err error) Result {
	if err == nil {
		return ResultStored
	}
	var f *failure
	var conflict *ConflictError
	switch {
	case errors.As(err, &conflict):
		return ResultConflict
	case errors.Is(err, ErrTooLarge):
		return ResultTooLarge
	case errors.As(err, &f):
		return f.result
	}
	return ResultError
}

// IsSame reports whether the event on the bus is m, stored by an earlier attempt. Equal IDs are not
// enough: after a restore of etcd, an object can reach the same resourceVersion again with another
// state. Then the epoch differs, and so does the sequence attribute, which contains the epoch.
// Deletes with the same ID and data are the same event even if their sequence attributes differ.
// The data must be equal, because anyone can predict the ID of a delete.
func IsSame(m, stored *event.Message) bool {
	return stored.ID == m.ID && bytes.Equal(stored.Data, m.Data) &&
		(m.Acked.Deleted || stored.Attribute("sequence") == m.Attribute("sequence"))
}

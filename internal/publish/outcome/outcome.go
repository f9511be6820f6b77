// Package outcome is what the buses share in telling how their publishes end: the
// result that the metrics count each one as, these metrics, and the count of those
// that have not ended yet.
//
// It knows nothing of any bus. What only one of them can answer is a [Result] of that
// bus's own.
package outcome

import (
	"errors"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// Result is how a publish ended, as the metric's label.
type Result string

// The results that every bus has.
const (
	Stored        Result = "stored"
	AlreadyStored Result = "already_stored" // an earlier attempt had landed
	Conflict      Result = "conflict"
	TooLarge      Result = "too_large"
	Busy          Result = "busy"
	Timeout       Result = "timeout"
	NotReady      Result = "not_ready"
	Closed        Result = "closed"
	Cancelled     Result = "cancelled"
	Error         Result = "error" // any other
)

func common() []Result {
	return []Result{Stored, AlreadyStored, Conflict, TooLarge, Busy, Timeout, NotReady, Closed, Cancelled, Error}
}

// failure is an error with the result that it counts as.
type failure struct {
	result Result
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Failure gives an error the result that it counts as.
func Failure(r Result, err error) error { return &failure{r, err} }

// Of is the result of a publish that ended with an error, or with nil: Stored, Conflict
// or TooLarge by the errors of package publish, another if [Failure] said so, else
// Error.
func Of(err error) Result {
	if err == nil {
		return Stored
	}
	var f *failure
	var conflict *publish.ConflictError
	switch {
	case errors.As(err, &conflict):
		return Conflict
	case errors.Is(err, publish.ErrTooLarge):
		return TooLarge
	case errors.As(err, &f):
		return f.result
	}
	return Error
}

// IsSame tells whether the event on the bus with these attributes is m itself, put
// there by an earlier attempt. Ids alone do not tell: after etcd was restored from a
// backup an object may come by the same resourceVersion a second time, with another
// state. The sequence holds the epoch, which then differs. A delete is the same
// whatever version it was seen at.
func IsSame(m *event.Message, attribute func(string) string) bool {
	return attribute("id") == m.ID &&
		(m.Acked.Deleted || attribute("sequence") == m.Attribute("sequence"))
}

package event

import "errors"

// InvalidReason says what is wrong with a message on the bus. It is a metric label.
type InvalidReason string

// The reasons. Everything that can write to the bus can cause them.
const (
	InvalidHeaders   InvalidReason = "headers"   // the headers cannot be parsed
	InvalidKey       InvalidReason = "key"       // the subject or the record key names no object
	InvalidEvent     InvalidReason = "event"     // not a CloudEvent, or not of a type that Kuberelay writes
	InvalidAttribute InvalidReason = "attribute" // an attribute is missing or malformed
	InvalidEpoch     InvalidReason = "epoch"     // no number of restores explains the epoch
	InvalidPosition  InvalidReason = "position"  // no message can be at the position
	InvalidData      InvalidReason = "data"      // the data cannot be parsed
	InvalidBatch     InvalidReason = "batch"     // a batch of Kafka records is malformed, or of an unknown format
	InvalidSize      InvalidReason = "size"      // a batch of Kafka records unpacks to too much
)

// InvalidReasons returns all reasons.
func InvalidReasons() []InvalidReason {
	return []InvalidReason{
		InvalidHeaders, InvalidKey, InvalidEvent, InvalidAttribute, InvalidEpoch, InvalidPosition, InvalidData,
		InvalidBatch, InvalidSize,
	}
}

// invalidError is an error with the reason for which a message is invalid.
type invalidError struct {
	reason InvalidReason
	err    error
}

func (e *invalidError) Error() string { return e.err.Error() }
func (e *invalidError) Unwrap() error { return e.err }

// Invalid returns err with the reason for which a message is invalid.
func Invalid(reason InvalidReason, err error) error { return &invalidError{reason, err} }

// ReasonOf returns the reason of [Invalid] in the chain of err, or InvalidEvent.
func ReasonOf(err error) InvalidReason {
	var invalid *invalidError
	if errors.As(err, &invalid) {
		return invalid.reason
	}
	return InvalidEvent
}

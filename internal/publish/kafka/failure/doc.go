// Package failure classifies the errors of requests to Kafka, so that the caller can decide what to
// do next. It looks at error values only, never at their text.
//
// The package does not know whether the brokers stored the batch of a failed request: after a
// timeout or a broken connection, they might have stored it.
package failure

package nats

import (
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

var (
	errTimeout = publish.Failure(publish.ResultTimeout, errors.New("no acknowledgement in time: the message might be stored"))
	errLost    = publish.Failure(stream.ResultDisconnected, errors.New("the connection broke before the acknowledgement: the message might be stored"))
	errOffline = publish.Failure(stream.ResultDisconnected, errors.New("not connected"))
	errClosed  = stream.ErrClosed
)

// sendFailure classifies the error of a message that the client could not send.
func (b *Bus) sendFailure(err error, msg *natsgo.Msg) error {
	switch {
	case errors.Is(err, natsgo.ErrMaxPayload):
		return fmt.Errorf("%w: %d bytes with headers, and the limit of the server is %d", publish.ErrTooLarge, payloadSize(msg), b.conn.NC.MaxPayload())
	case errors.Is(err, natsgo.ErrReconnectBufExceeded):
		return errOffline
	case errors.Is(err, natsgo.ErrConnectionClosed):
		return errClosed
	}
	return err
}

// payloadSize returns the size that the server compares with max_payload: headers and data.
func payloadSize(msg *natsgo.Msg) int {
	return msg.Size() - len(msg.Subject) - len(msg.Reply)
}

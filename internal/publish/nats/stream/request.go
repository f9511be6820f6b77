package stream

import (
	"context"
	"encoding/json"
	"time"

	natsgo "github.com/nats-io/nats.go"
)

// LastPosition returns the position of the last message with a matching subject, from the leader of
// the stream. It returns 0 if there is no such message.
func (c *Conn) LastPosition(ctx context.Context, subjects string) (uint64, error) {
	last, err := c.GetMessage(ctx, LastRequest(subjects))
	if err != nil || last == nil {
		return 0, err
	}
	return last.Sequence, nil
}

// LastRequest returns a request for the last message with a matching subject.
func LastRequest(subject string) []byte {
	request, _ := json.Marshal(map[string]string{"last_by_subj": subject}) // strings always marshal
	return request
}

// NextRequest returns a request for the first message with a matching subject at or after a
// position.
func NextRequest(subjects string, from uint64) []byte {
	request, _ := json.Marshal(struct { // a number and a string always marshal
		Sequence uint64 `json:"seq"`
		Subjects string `json:"next_by_subj"`
	}{from, subjects})
	return request
}

// SequenceRequest returns a request for the message at a position.
func SequenceRequest(position uint64) []byte {
	request, _ := json.Marshal(map[string]uint64{"seq": position}) // a number always marshals
	return request
}

// GetMessage sends a request for a message to the leader of the stream. It does not use direct get,
// because replicas also respond to that.
func (c *Conn) GetMessage(ctx context.Context, request []byte) (*Message, error) {
	c.metrics.reads.Inc()
	answer, err := c.Request(ctx, "STREAM.MSG.GET", request)
	if err != nil {
		return nil, err
	}
	return ParseMessage(answer)
}

// API returns the subject of a JetStream API request for the stream.
func (c *Conn) API(what string) string { return c.Opts.API(what + "." + c.Opts.Stream) }

// API returns the subject of a JetStream API request in the domain of the stream.
func (o Options) API(what string) string {
	if o.Domain == "" {
		return "$JS.API." + what
	}
	return "$JS." + o.Domain + ".API." + what
}

// RequestTimeout is the timeout of requests without a deadline. It is at least 1 s, because some
// requests take the server longer than an acknowledgement.
func (c *Conn) RequestTimeout() time.Duration { return max(c.Opts.AckTimeout, time.Second) }

// Request sends a JetStream API request for the stream. If ctx has no deadline, Request waits at
// most RequestTimeout.
func (c *Conn) Request(ctx context.Context, what string, data []byte) (*natsgo.Msg, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, c.RequestTimeout())
		defer cancel()
	}
	ctx, cancel := c.untilStop(ctx)
	defer cancel()
	answer, err := c.NC.RequestWithContext(ctx, c.API(what), data)
	if err != nil && c.IsClosing() {
		return nil, ErrClosed
	}
	return answer, err
}

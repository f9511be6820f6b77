package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish/nats/stream/paging"
)

// LastPosition returns the position of the last message with a matching subject, from the stream
// leader. It returns 0 if there is no such message.
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

// GetMessage sends a request for a message to the stream leader. It does not use direct get,
// because followers also respond to direct get.
func (c *Conn) GetMessage(ctx context.Context, request []byte) (*Message, error) {
	c.metrics.reads.Inc()
	answer, err := c.Request(ctx, "STREAM.MSG.GET", request)
	if err != nil {
		return nil, err
	}
	return ParseMessage(answer)
}

// pageTimeout is the minimum timeout of the request for one page of subjects. For each page, the
// server collects and sorts all subjects, which takes seconds if there are millions.
const pageTimeout = 30 * time.Second

// Subjects calls found once with each subject that matches the filter and has messages on the
// stream leader during the whole call. It might or might not call found with a subject whose first
// message is stored meanwhile, or whose last message is removed. It reads no messages. Each request
// has its own timeout, and their number is limited. An error means that the list might be incomplete.
//
// [jetstream.WithSubjectFilter] is not sufficient: if subjects are added or removed between two pages,
// the JetStream client misses a subject or never returns. See [paging.Read].
func (c *Conn) Subjects(ctx context.Context, filter string, found func(subject string)) error {
	err := paging.Read(func(offset int) (paging.Page, error) { return c.page(ctx, filter, offset) }, found)
	if err != nil {
		return fmt.Errorf("list the subjects of stream %q: %w", c.Opts.Stream, err)
	}
	return nil
}

// page asks the stream leader for the subjects from an offset on.
func (c *Conn) page(ctx context.Context, filter string, offset int) (paging.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, max(c.RequestTimeout(), pageTimeout))
	defer cancel()
	request, _ := json.Marshal(struct { // a number and a string always marshal
		Filter string `json:"subjects_filter"`
		Offset int    `json:"offset"`
	}{filter, offset})
	answer, err := c.Request(ctx, "STREAM.INFO", request)
	if err != nil {
		return paging.Page{}, err
	}
	var body struct {
		Error *jetstream.APIError `json:"error"`
		Limit int                 `json:"limit"`
		Total int                 `json:"total"`
		*jetstream.StreamInfo
	}
	if err := json.Unmarshal(answer.Data, &body); err != nil {
		return paging.Page{}, err
	}
	switch {
	case body.Error != nil:
		return paging.Page{}, APIFailure(body.Error)
	case body.StreamInfo == nil:
		return paging.Page{}, jetstream.ErrInvalidJetStreamResponse
	}
	return paging.Page{Subjects: body.State.Subjects, Limit: body.Limit, Total: body.Total}, LeaderError(body.StreamInfo)
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

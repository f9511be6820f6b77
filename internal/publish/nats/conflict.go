package nats

import (
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// readLast requests the last message on the subject of a rejected flight. That message shows why the publish
// was rejected. readLast asks the stream leader and does not use direct get, because a follower might lack
// the message that caused the rejection.
func (b *Bus) readLast(rejected *flight) {
	f := new(*rejected) // a copy, because a sweep can still read the rejected flight
	f.reading = true
	b.conn.CountRead()
	f.deadline = time.Now().Add(b.opts.AckTimeout)
	if !b.flights.put(f) {
		b.finish(f, 0, errClosed)
		return
	}
	request := &natsgo.Msg{Subject: b.conn.API("STREAM.MSG.GET"), Reply: b.reply(f.token), Data: stream.LastRequest(f.subject)}
	if err := b.conn.NC.PublishMsg(request); err != nil && b.flights.take(f.token) != nil {
		b.finish(f, 0, b.sendFailure(err, request))
	}
}

// resolve completes f according to the last message of its subject.
func (b *Bus) resolve(f *flight, answer *natsgo.Msg) {
	last, err := stream.ParseMessage(answer)
	if err != nil {
		b.finish(f, 0, err)
		return
	}
	position, conflict, invalid := stream.Resolve(f.m, last)
	if invalid != nil {
		b.opts.Invalid.Report("", last.Sequence, invalid, "subject", last.Subject)
	}
	if conflict != nil {
		b.finish(f, 0, conflict)
		return
	}
	b.finishAs(publish.ResultAlreadyStored, f, position, nil)
}

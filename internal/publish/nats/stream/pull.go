package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// pullExpiry is the time after which a request for messages expires on the server.
const pullExpiry = 30 * time.Second

// Status codes of the responses to a request for messages (ADR-13 of NATS).
const (
	statusHeartbeat    = "100"
	statusNoMessages   = "404"
	statusExpired      = "408"
	statusConflict     = "409" // the server ends the request early
	statusNoResponders = "503" // the consumer's replica has not created the consumer yet, or is unreachable
)

// serverShutdown is the description in the [statusConflict] response of a server that shuts down.
const serverShutdown = "Server Shutdown"

// ErrIdle means that the server sent a heartbeat, because the consumer has no message to deliver.
var ErrIdle = errors.New("the consumer has no message to deliver")

// respondersRetry is the pause before the next request if a request had no responders.
const respondersRetry = 100 * time.Millisecond

// Puller reads the messages of a pull consumer.
//
// The iterator of the JetStream client is not sufficient, and neither is a subscription's NextMsg.
// They recognize a server response by a header. A stored message can also have this header, and
// then they drop the message or stop. A Puller recognizes a response by its subject, which only the
// server sets.
type Puller struct {
	nc         *natsgo.Conn
	sub        *natsgo.Subscription
	msgs       chan *natsgo.Msg
	stop       sync.Once
	stopped    chan struct{}
	inbox      string
	subject    string // the subject that requests are published to
	request    []byte
	batch      int
	pending    int    // messages that the server might still send for the requests so far
	reconnects uint64 // number of reconnects at the last request; a disconnect ends all requests
}

// Pull starts to read a consumer, and requests batch messages at a time. The server sends heartbeats
// if heartbeat is not 0.
func (c *Conn) Pull(consumer jetstream.Consumer, batch int, heartbeat time.Duration) (*Puller, error) {
	p := &Puller{
		nc: c.NC, inbox: c.NC.NewInbox(), batch: batch, stopped: make(chan struct{}),
		subject: c.API("CONSUMER.MSG.NEXT") + "." + consumer.CachedInfo().Name,
		msgs:    make(chan *natsgo.Msg, 2*batch+100), // room for pending messages and responses
	}
	p.request, _ = json.Marshal(struct { // numbers always marshal
		Batch     int           `json:"batch"`
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
	}{batch, pullExpiry, heartbeat})
	var err error
	if p.sub, err = c.NC.ChanSubscribe(p.inbox, p.msgs); err != nil {
		return nil, fmt.Errorf("subscribe to messages: %w", err)
	}
	return p, nil
}

// Stop stops the Puller. Next then returns an error. Stop is idempotent.
func (p *Puller) Stop() {
	p.stop.Do(func() {
		close(p.stopped)
		_ = p.sub.Unsubscribe() // fails only if the connection is closed
	})
}

// Next returns the next message. It returns [ErrIdle] if a heartbeat arrives first, and nats.ErrTimeout
// if neither a message nor a heartbeat arrives in time. After any other error, the consumer must be
// recreated.
func (p *Puller) Next(within time.Duration) (*Message, *natsgo.MsgMetadata, error) {
	for began := time.Now(); ; {
		if p.pending <= p.batch/2 {
			if err := p.nc.PublishRequest(p.subject, p.inbox, p.request); err != nil {
				return nil, nil, err
			}
			p.pending += p.batch
			p.reconnects = p.nc.Stats().Reconnects
		}
		msg, err := p.receive(within)
		if errors.Is(err, natsgo.ErrTimeout) && p.reconnects != p.nc.Stats().Reconnects {
			p.pending = 0
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if msg.Subject == p.inbox {
			switch err := p.respond(msg.Header); {
			case err == nil:
			case !errors.Is(err, natsgo.ErrNoResponders):
				return nil, nil, err
			case time.Since(began) > within || !p.pause():
				return nil, nil, natsgo.ErrTimeout
			}
			continue
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, nil, err
		}
		p.pending--
		return &Message{
			Subject: msg.Subject, Sequence: meta.Sequence.Stream, Time: meta.Timestamp, Headers: msg.Header, Data: msg.Data,
		}, meta, nil
	}
}

func (p *Puller) receive(within time.Duration) (*natsgo.Msg, error) {
	select {
	case msg := <-p.msgs: // avoids a timer if a message is available
		return msg, nil
	default:
	}
	select {
	case msg := <-p.msgs:
		return msg, nil
	case <-time.After(within):
		return nil, natsgo.ErrTimeout
	case <-p.stopped:
		return nil, natsgo.ErrBadSubscription
	}
}

// pause waits before another request. It returns false after Stop.
func (p *Puller) pause() bool {
	select {
	case <-time.After(respondersRetry):
		return true
	case <-p.stopped:
		return false
	}
}

// respond handles a response from the server that carries no message.
func (p *Puller) respond(header natsgo.Header) error {
	switch status := header.Get("Status"); status {
	case statusHeartbeat:
		return ErrIdle
	case statusNoMessages, statusExpired:
		left, err := strconv.Atoi(header.Get("Nats-Pending-Messages"))
		if err != nil {
			left = p.pending
		}
		p.pending = max(0, p.pending-left)
	case statusNoResponders:
		p.pending = 0
		return natsgo.ErrNoResponders
	default:
		if status == statusConflict && header.Get("Description") == serverShutdown {
			p.pending = 0
			return natsgo.ErrNoResponders // the connection will end, or another server takes over the consumer
		}
		return errors.New("the server ended the request for messages: " + status + " " + header.Get("Description"))
	}
	return nil
}

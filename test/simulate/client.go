package simulate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

const (
	clusterName   = "test"
	subjectPrefix = "kuberelay"
)

func subjectOf(object int) string { return subject.Object(subjectPrefix, clusterName, keyOf(object)) }

var (
	errTimeout = publish.Failure(publish.ResultTimeout, errors.New("no acknowledgement in time"))
	errLost    = publish.Failure(stream.ResultDisconnected, errors.New("the connection broke"))
	errOffline = publish.Failure(publish.ResultNotReady, errors.New("not connected"))
)

// flight is an event on its way to the bus, and its acknowledgement on the way back. It models how
// internal/publish/nats and internal/publish/kafka send an event.
type flight struct {
	sender  *process // nil if nobody waits for the response
	of      *process // the process that sent it
	term    *ledger.Term
	session *session // nil on NATS
	object  int
	m       *event.Message
	follows event.Acked              // the last event of the object as the sender knows it
	shown   *event.Object            // the object in the sender's informer when the event was sent
	latest  *event.Object            // the last selected state that the sender knew when a worker took the key
	gone    map[string]*event.Object // the last states of deleted objects that the handler had received then
	// When the event was sent, the handler had reported every change up to the version in reported. "" means
	// that it had reported none, or that the sender no longer waits for it.
	reported string
	headers  natsgo.Header
	data     []byte
	wanted   uint64
	done     func(uint64, error)

	stage    stage
	reading  bool            // the request reads the last message of the subject
	position uint64          // in the response; 0 if the bus refused the message
	last     *stream.Message // in the response to the read
	failed   error           // in the response, on Kafka
	late     bool            // the sender has stopped waiting, but its session keeps sending the message
	former   bool            // the informer that showed the state has ended since
}

// stage is the progress of a flight.
type stage uint8

const (
	requested stage = iota
	answered
	lost // the request or the response was lost
)

func (n nats) publish(_ context.Context, m *event.Message, done func(uint64, error)) {
	if n.p.world.bus.down {
		done(0, fmt.Errorf("publish %s: %w: %w", m.ID, publish.ErrNotSent, errOffline))
		return
	}
	n.p.send(m, nil, done)
}

// send adds a flight. s is nil on NATS.
func (p *process) send(m *event.Message, s *session, done func(uint64, error)) {
	h := binding.NewHeader()
	defer h.Free()
	msg, err := binding.Encode(m, false, h)
	if err != nil {
		done(0, err)
		return
	}
	p.world.tell("  forwarder %d sends %s after position %d", p.slot+1, describe(m), m.Expected)
	object, reported := objectOf(m.Key), p.Reported(m.Key)
	if is := p.ledger.Outlived(m.Key); is.Position > 0 && p.now().Sub(is.At) > unseenLimit {
		reported = ""
	}
	p.world.flights = append(p.world.flights, &flight{
		sender: p, of: p, term: p.acked, session: s, object: object, m: m, follows: p.acked.Get(m.Key), shown: p.reflector.indexer[object], latest: p.keys[object].latest, gone: p.keys[object].gone, reported: reported, headers: cloneHeader(msg.Header), data: bytes.Clone(msg.Data), wanted: m.Expected, done: done,
	})
}

// message returns the message of a flight as the bus stores it.
func (f *flight) message(position uint64, now time.Time) stream.Message {
	return stream.Message{Subject: subjectOf(f.object), Sequence: position, Time: now, Headers: f.headers, Data: f.data}
}

func cloneHeader(h natsgo.Header) natsgo.Header {
	c := make(natsgo.Header, len(h))
	values := make([]string, 0, len(h))
	for name, value := range h {
		values = append(values, value...)
		c[name] = values[len(values)-1:]
	}
	return c
}

func describe(m *event.Message) string {
	return fmt.Sprintf("%s %s %s", event.Type(m.Attribute("type")).Short(), m.Key.Name, m.ID)
}

// flight returns the first flight about an object at a stage, or nil. slot is the slot of the
// sender, or none for a flight that nobody waits for.
func (w *world) flight(slot int8, object int, at stage) *flight {
	for _, f := range w.flights {
		if f.object == object && f.stage == at && (f.sender == nil && slot == none || f.sender != nil && f.sender.slot == slot) {
			return f
		}
	}
	return nil
}

// arrive delivers the request of a flight to the bus.
func (w *world) arrive(f *flight) {
	if f.session != nil {
		w.arriveAtKafka(f)
		return
	}
	f.stage = answered
	subject := subjectOf(f.object)
	if !f.reading && w.reuses(f) {
		w.tell("  the request is lost, because the position that it expects now belongs to another message")
		f.stage = lost
		if f.sender == nil {
			w.drop(f)
		}
		return
	}
	if f.reading {
		f.last = nil
		if last := w.bus.lastOf(subject); last != nil {
			is := *last
			f.last = &is
		}
	} else {
		position, ok := w.bus.publish(subject, f.headers, f.data, f.wanted, w.now)
		f.position = position
		if ok {
			w.tell("  the bus stores %s at %d", describe(f.m), position)
			w.storedEvent(f, w.bus.at(position))
		} else {
			w.tell("  the bus refuses %s", describe(f.m))
		}
	}
	if f.sender == nil {
		w.drop(f)
	}
}

// storedEvent records that the bus has stored the event of a flight.
func (w *world) storedEvent(f *flight, m *stream.Message) {
	w.stores++
	last, _ := w.oracle.last(f.object)
	w.oracle.stored(m, f)
	w.oracle.writer[f.object] = f.term
	w.oracle.unknown[f.object] = w.oracle.followsReusedPosition(f.follows, last) || w.processes[f.of.slot] != f.of || f.of.acked != f.term || f.of.superseded || f.session != f.of.session || f.former
}

// reuses reports whether the sequence that a request expects now belongs to another message: the
// bus lost the original message and used its sequence again. A compare-and-set can't detect that.
func (w *world) reuses(f *flight) bool {
	last, _ := w.oracle.last(f.object)
	if w.oracle.forged[f.object] != nil { // the expected event may be forged
		return false
	}
	// A forwarder adopts the event of another forwarder, or of a killed one, without its version.
	isOther := w.writers == 1 && f.follows.ResourceVersion != "" && last.ResourceVersion != f.follows.ResourceVersion
	return f.wanted != 0 && f.wanted <= w.bus.lost && last.Position == f.wanted && !f.follows.Foreign &&
		(last.UID != f.follows.UID || last.Deleted != f.follows.Deleted || isOther)
}

// answer delivers the bus's answer to the sender of a flight.
func (w *world) answer(f *flight) {
	switch {
	case f.session != nil:
		w.answerOfKafka(f)
	case f.reading:
		position, conflict, _ := stream.Resolve(f.m, f.last)
		if conflict != nil {
			w.finish(f, 0, conflict)
		} else {
			w.finish(f, position, nil)
		}
	case f.position == 0:
		f.reading, f.stage = true, requested
	default:
		w.finish(f, f.position, nil)
	}
}

// finish ends a flight and passes the result to its sender.
func (w *world) finish(f *flight, position uint64, err error) {
	w.drop(f)
	if err != nil {
		err = fmt.Errorf("publish %s: %w", f.m.ID, err)
	}
	f.done(position, err)
}

// stopWaiting makes the sender of a flight stop waiting. The request may still arrive at the bus.
func (w *world) stopWaiting(f *flight, err error) {
	w.oracle.unsure[f.object] = true
	done := f.done
	if f.session != nil && f.session == f.of.session {
		f.done, f.late = func(uint64, error) {}, true
		done(0, fmt.Errorf("publish %s: %w", f.m.ID, err))
		return
	}
	if f.stage == requested && !f.reading && w.isFirst(f) {
		late := *f
		late.sender, late.done = nil, nil
		id := *f.m
		late.m = &id
		w.flights = append(w.flights, &late)
	}
	w.drop(f)
	if done != nil && f.sender != nil {
		done(0, fmt.Errorf("publish %s: %w", f.m.ID, err))
	}
}

// abandon ends the flights of a killed process. Their requests may still arrive at the bus.
func (w *world) abandon(p *process) {
	for _, f := range w.flightsOf(p) {
		f.done = func(uint64, error) {}
		w.stopWaiting(f, errLost)
	}
}

func (w *world) flightsOf(p *process) []*flight {
	var of []*flight
	for _, f := range w.flights {
		if f.sender == p {
			of = append(of, f)
		}
	}
	return of
}

// disconnect breaks the connection of a process to the bus.
func (w *world) disconnect(p *process) {
	p.connections++
	for _, f := range w.flightsOf(p) {
		if f.session != nil {
			f.stage = requested // the session sends the event again
			continue
		}
		w.stopWaiting(f, errLost)
	}
	p.retryNow()
	if p.loaded && !w.isKafka() {
		p.mayLose()
	}
}

// stopBus stops the server. Requests in flight are lost.
func (w *world) stopBus() {
	w.bus.down = true
	for _, p := range w.processes {
		if p != nil {
			p.connections++
		}
	}
	all := w.flights
	w.flights = nil
	for _, f := range all {
		if f.session != nil {
			if f.sender != nil {
				f.stage, w.flights = requested, append(w.flights, f)
			}
			continue
		}
		w.oracle.unsure[f.object] = true
		if f.sender != nil {
			f.done(0, fmt.Errorf("publish %s: %w", f.m.ID, errLost))
		}
	}
}

// syncInterval is the maximum time for which a server keeps a message only in memory. A server that restarts with
// an earlier copy of its store also loses messages that are older.
const syncInterval = 2 * time.Minute

// startBus starts the server. arg determines how many of its last messages the server has lost, and on
// Kafka also which topics have lost them, and whether the forwarders have noticed the outage. On NATS, it also
// determines whether the server has an earlier copy of its store.
func (w *world) startBus(arg int) {
	w.bus.down = false
	lose := max(0, arg%6-2)
	if w.isKafka() {
		w.startBrokers(lose, arg/6%3, arg/18 == 0)
		return
	}
	if lose > 0 && len(w.bus.messages) > 0 {
		after := uint64(0)
		for n, m := range w.bus.messages {
			if n < len(w.bus.messages)-lose || arg < 6 && w.now.Sub(m.Time) > syncInterval {
				after = m.Sequence
			}
		}
		w.tell("  it has lost what was stored after %d", after)
		w.bus.lose(after)
		w.oracle.lost()
		w.plain = false
	}
	for _, p := range w.processes {
		if p != nil && p.loaded {
			p.retryNow()
			p.mayLose()
		}
	}
}

// lose loses the request or the response of a flight. On Kafka, the session sends the event again.
func (f *flight) lose() {
	f.stage = lost
	if f.session != nil {
		f.stage = requested
	}
}

func (w *world) drop(f *flight) {
	for n, other := range w.flights {
		if other == f {
			w.flights = append(w.flights[:n:n], w.flights[n+1:]...)
			return
		}
	}
}

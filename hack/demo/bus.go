package main

import (
	"context"
	"fmt"
	"strings"
)

// bus is what the events go over.
type bus interface {
	// start starts what does not come with the forwarder.
	start(context.Context, *stage) error
	// settings and reading are variables of the forwarder and of forwarder tail.
	settings() []string
	reading() []string
	// words are what the acts say of it.
	words() words
	// byHand are commands to read the bus with; bin is the forwarder.
	byHand(bin string) string
	// subscribe gives take each event from the first on, one at a time, as soon as there
	// is something to read, until close. It uses nothing but a client of the bus.
	subscribe(ctx context.Context, take func(event, error)) (closer func(), err error)
	stop() error
}

// words fill the places {server} and {killed} of the acts; subject is what the bus calls
// an object's.
type words struct{ server, killed, subject string }

func (w words) fill(s string) string {
	return strings.NewReplacer("{server}", w.server, "{killed}", w.killed).Replace(s)
}

func chooseBus(sink string) (bus, error) {
	switch sink {
	case "", "nats":
		return &natsBus{}, nil
	case "kafka":
		return &kafkaBus{}, nil
	}
	return nil, fmt.Errorf("SINK=%q: use nats or kafka", sink)
}

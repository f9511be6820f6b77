package kafkabroker

import (
	"context"
	"net"
	"os"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// Dir returns the broker's directory.
func (b *Broker) Dir() string { return b.dir }

// Pids returns the process ids of the broker and of its group's holder.
func (b *Broker) Pids() []int { return []int{b.group.ID(), b.process.PID()} }

// StartOnTakenPort is Start, except that the first attempt gives the plaintext listener the port that
// taken listens on. It returns the number of attempts to hold ports.
func StartOnTakenPort(ctx context.Context, opts Options, taken net.Listener) (b *Broker, holds int, err error) {
	b, err = start(ctx, opts, func(listeners []Listener) (map[Listener]childprocess.Port, error) {
		holds++
		ports, err := holdPorts(listeners)
		if err == nil && holds == 1 {
			p := ports[Plaintext]
			p.Number = taken.Addr().(*net.TCPAddr).Port
			ports[Plaintext] = p
		}
		return ports, err
	})
	return b, holds, err
}

// StartWithClasses is Start with the given file as the archive of loaded classes.
func StartWithClasses(ctx context.Context, archive string) (*Broker, error) {
	installed, err := Fetch(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	installed.classes = archive
	return launch(ctx, Options{}, installed, holdPorts, func(*Broker) {})
}

// Classes returns the archive of loaded classes that the broker was started with.
func (b *Broker) Classes() string { return b.installed.classes }

package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// A Broker is a broker that runs or can be started again. Its methods may be
// called concurrently; those that start, end or empty it wait for each other.
type Broker struct {
	opts      Options
	installed Installation
	dir       string
	temporary bool
	ports     map[Listener]childprocess.Port
	group     *childprocess.Group
	process   *childprocess.Process

	mu        sync.Mutex // held by what changes whether it runs, or its data
	closeOnce func() error
}

const (
	// startAttempts is how often Start tries other ports where the first were taken.
	startAttempts = 3
	// stopTimeout is how long the broker may take to end when it is asked to.
	stopTimeout = 2 * time.Minute
)

// errPortTaken is why a broker ends that finds another listener on its port.
var errPortTaken = errors.New("one of its ports is taken")

// Start starts a broker and returns when it is ready. It lives until Close, or
// this process' end, whatever becomes of ctx. The broker is fetched if need be,
// see Fetch. On an error nothing runs, a temporary folder is gone, and the error
// has the end of the broker's log.
func Start(ctx context.Context, opts Options) (*Broker, error) {
	return start(ctx, opts, holdPorts)
}

func start(ctx context.Context, opts Options, hold func([]Listener) (map[Listener]childprocess.Port, error)) (*Broker, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("start the Kafka broker: %w", err)
	}
	installed, err := Fetch(ctx, opts.log())
	if err != nil {
		return nil, err
	}
	return launch(ctx, opts, installed, hold, func(*Broker) {})
}

// launch starts a broker that was fetched, after change has changed it.
func launch(ctx context.Context, opts Options, installed Installation,
	hold func([]Listener) (map[Listener]childprocess.Port, error), change func(*Broker),
) (*Broker, error) {
	b := &Broker{opts: opts, installed: installed, temporary: opts.Dir == ""}
	b.closeOnce = sync.OnceValue(b.end)
	if err := b.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the Kafka broker: %w", err), b.Close())
	}
	change(b)
	for attempt := 1; ; attempt++ {
		var err error
		if b.ports, err = hold(slices.Concat([]Listener{Plaintext, controller}, opts.Listeners)); err == nil {
			err = b.Start(ctx)
		}
		if err == nil {
			return b, nil
		}
		if attempt == startAttempts || !errors.Is(err, errPortTaken) {
			return nil, errors.Join(err, b.Close())
		}
		releasePorts(b.ports)
	}
}

// prepare makes the broker's folder and all that lives as long as it.
func (b *Broker) prepare() error {
	var err error
	if b.temporary {
		b.dir, err = os.MkdirTemp("", "kuberelay-kafka-")
	} else {
		b.dir, err = filepath.Abs(b.opts.Dir)
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(b.dir, tmpDir), 0o700); err != nil {
		return err
	}
	removed := ""
	if b.temporary {
		removed = b.dir
	}
	if b.group, err = childprocess.NewGroup(removed); err != nil {
		return err
	}
	b.process = &childprocess.Process{
		Name: "the Kafka broker", Args: b.brokerArgs(), Env: locale(), Dir: b.dir, LogFile: b.Log(), Group: b.group,
		Told: b.opts.log(), TellOnlyOnceReady: true, // before that another try may follow, see launch
	}
	return nil
}

// Start starts the broker after it was stopped or killed, with its ports and
// data, and waits until it is ready.
func (b *Broker) Start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.configure(ctx); err != nil {
		return fmt.Errorf("start the Kafka broker: %w", err)
	}
	if err := b.process.Start(); err != nil {
		return err
	}
	err := b.process.Await(ctx, b.ready)
	if err == nil {
		return nil
	}
	var ended *childprocess.EndedError
	if errors.As(err, &ended) && strings.Contains(ended.Log, "Address already in use") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return errors.Join(fmt.Errorf("start the Kafka broker: %w", err), b.process.Kill())
}

// configure writes all that a broker, which must not be running, reads.
func (b *Broker) configure(ctx context.Context) error {
	if b.process.Running() {
		return errors.New("it is running")
	}
	if err := b.opts.writeConfiguration(b.dir, b.ports); err != nil {
		return err
	}
	return b.format(ctx)
}

// Stop ends the broker in an orderly way, and kills it if it has not ended
// after two minutes, which is an error. Stopping a broker that does not run
// does nothing.
func (b *Broker) Stop() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stop()
}

func (b *Broker) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return b.process.Stop(ctx)
}

// Kill ends the broker with kill -9, if it is running, and waits for its end.
func (b *Broker) Kill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.process.Kill()
}

// Freeze makes the broker stand still: connections stay, and are made, but
// nothing answers. It is no error if it stands still already.
func (b *Broker) Freeze() error { return b.process.Freeze() }

// Thaw lets a frozen broker go on; one that is not frozen does so anyway.
func (b *Broker) Thaw() error { return b.process.Thaw() }

// Forget drops all data of a broker that does not run, topics, ACLs and the
// cluster's id too. It starts empty the next time.
func (b *Broker) Forget() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := errors.New("it is running: stop it first")
	if !b.process.Running() {
		err = os.RemoveAll(filepath.Join(b.dir, dataDir))
	}
	if err != nil {
		return fmt.Errorf("forget the Kafka broker's data: %w", err)
	}
	return nil
}

// Close ends the broker for good. One with a temporary folder is killed and the
// folder removed; one with a Dir is stopped as by Stop. It takes minutes at
// most, mostly far less; only the first call does anything, and all return its error.
func (b *Broker) Close() error { return b.closeOnce() }

func (b *Broker) end() error {
	var err error
	if b.process != nil {
		b.process.Retire() // one that is being started ends, and waits no longer
		if !b.temporary {
			err = b.stop()
		}
	}
	switch {
	case b.group != nil:
		err = errors.Join(err, b.group.Close())
	case b.temporary && b.dir != "":
		err = errors.Join(err, os.RemoveAll(b.dir))
	}
	if b.process != nil {
		err = errors.Join(err, b.process.Kill()) // it is dead, but may not be gone yet
	}
	releasePorts(b.ports)
	if err != nil {
		return fmt.Errorf("close the Kafka broker: %w", err)
	}
	return nil
}

// Addr is where the plaintext listener is, as host:port.
func (b *Broker) Addr() string { return b.AddrOf(Plaintext) }

// AddrOf is where the listener is, as host:port. It panics for one that was not
// asked for.
func (b *Broker) AddrOf(l Listener) string {
	p, ok := b.ports[l]
	if !ok {
		panic(fmt.Sprintf("the Kafka broker was started without the listener %s", l))
	}
	return p.Address()
}

// Log is the file that the broker's output of all its lives is in.
func (b *Broker) Log() string { return filepath.Join(b.dir, logFile) }

// LogTail returns the last lines of the broker's log, for a test that failed to show.
func (b *Broker) LogTail(lines int) string { return b.process.Tail(lines) }

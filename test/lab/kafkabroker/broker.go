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

// A Broker is a broker that is running or can be started again. Its methods may be called concurrently.
// Methods that start, stop or empty the broker run one at a time.
type Broker struct {
	opts      Options
	installed Installation
	dir       string
	temporary bool
	ports     map[Listener]childprocess.Port
	group     *childprocess.Group
	process   *childprocess.Process

	mu        sync.Mutex // held while the broker starts or ends, or its data changes
	closeOnce func() error
}

const (
	// startAttempts is the number of attempts with other ports if a port is taken.
	startAttempts = 3
	// stopTimeout limits a clean shutdown of the broker.
	stopTimeout = 2 * time.Minute
)

// errPortTaken means that the broker ended because another process listens on its port.
var errPortTaken = errors.New("one of its ports is taken")

// Start starts a broker and waits until it is ready. The broker runs until Close or the end of this
// process, even if ctx ends earlier. Start fetches the broker if necessary: see [Fetch]. After an
// error, no process remains, and a temporary directory is removed. The error contains the last lines of
// the broker's log.
func Start(ctx context.Context, opts Options) (*Broker, error) {
	return start(ctx, opts, holdPorts)
}

func start(ctx context.Context, opts Options, hold func([]Listener) (map[Listener]childprocess.Port, error)) (*Broker, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("start the Kafka broker: %w", err)
	}
	fetch := Fetch
	if opts.Former {
		fetch = FetchFormer
	}
	installed, err := fetch(ctx, opts.log())
	if err != nil {
		return nil, err
	}
	return launch(ctx, opts, installed, hold, func(*Broker) {})
}

// launch starts a fetched broker. change may modify the broker before its first start.
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
		if b.ports, err = hold(slices.Concat(opts.usual(), opts.Listeners)); err == nil {
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

// prepare creates the broker's directory and process.
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
		Told: b.opts.log(), TellOnlyOnceReady: true, // launch may repeat the start
	}
	return nil
}

// Start starts a stopped or killed broker with its ports and data and waits until it is ready.
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

// configure writes the broker's files. The broker must not be running.
func (b *Broker) configure(ctx context.Context) error {
	if b.process.Running() {
		return errors.New("it is running")
	}
	if err := b.opts.writeConfiguration(b.dir, b.ports); err != nil {
		return err
	}
	return b.format(ctx)
}

// Stop shuts the broker down. If the shutdown takes more than two minutes, Stop kills the broker and
// returns an error. Stop has no effect on a broker that isn't running.
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

// Upgrade makes the next start run the current release.
func (b *Broker) Upgrade(ctx context.Context) error {
	installed, err := Fetch(ctx, b.opts.log())
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.installed = installed
	b.process.Args = b.brokerArgs()
	return nil
}

// Kill kills the broker with SIGKILL, if it is running, and waits for its end.
func (b *Broker) Kill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.process.Kill()
}

// Freeze freezes the broker. Connections stay open and new connections succeed, but the broker doesn't
// respond. Freezing a frozen broker isn't an error.
func (b *Broker) Freeze() error { return b.process.Freeze() }

// Thaw resumes a frozen broker. It has no effect on a broker that isn't frozen.
func (b *Broker) Thaw() error { return b.process.Thaw() }

// Close ends the broker permanently. If the broker has a temporary directory, Close kills the broker and
// removes the directory. Otherwise Close shuts the broker down like Stop. Close normally takes far less
// than its limit of a few minutes. Only the first call has an effect. All calls return its error.
func (b *Broker) Close() error { return b.closeOnce() }

func (b *Broker) end() error {
	var err error
	if b.process != nil {
		b.process.Retire() // also ends a start in progress
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
		err = errors.Join(err, b.process.Kill()) // the process was killed, but may not have ended yet
	}
	releasePorts(b.ports)
	if err != nil {
		return fmt.Errorf("close the Kafka broker: %w", err)
	}
	return nil
}

// Addr returns the address of the plaintext listener, as host:port.
func (b *Broker) Addr() string { return b.AddrOf(Plaintext) }

// AddrOf returns the address of a listener, as host:port. It panics if the broker doesn't have the
// listener.
func (b *Broker) AddrOf(l Listener) string {
	p, ok := b.ports[l]
	if !ok {
		panic(fmt.Sprintf("the Kafka broker was started without the listener %s", l))
	}
	return p.Address()
}

// Log returns the path of the file with the broker's output since its first start.
func (b *Broker) Log() string { return filepath.Join(b.dir, logFile) }

// LogTail returns the last lines of the broker's log, for a failed test.
func (b *Broker) LogTail(lines int) string { return b.process.Tail(lines) }

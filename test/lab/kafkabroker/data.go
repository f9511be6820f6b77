package kafkabroker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Data returns the folder with the broker's logs.
func (b *Broker) Data() string { return filepath.Join(b.dir, dataDir) }

// CopyData copies the data of a broker that doesn't run to a folder that doesn't exist, like a
// backup of its disk.
func (b *Broker) CopyData(to string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.atRest("copy", func() error { return os.CopyFS(to, os.DirFS(b.Data())) })
}

// PutBackData replaces the data of a broker that doesn't run by a copy of CopyData.
func (b *Broker) PutBackData(from string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.atRest("put back", func() error {
		return errors.Join(os.RemoveAll(b.Data()), os.CopyFS(b.Data(), os.DirFS(from)))
	})
}

// Forget removes all data of a broker that doesn't run, including topics, ACLs and the cluster id.
// The broker starts empty the next time.
func (b *Broker) Forget() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.atRest("forget", func() error { return os.RemoveAll(b.Data()) })
}

// atRest changes or reads the data of a broker that must not run.
func (b *Broker) atRest(what string, do func() error) error {
	err := errors.New("it is running: stop it first")
	if !b.process.Running() {
		err = do()
	}
	if err != nil {
		return fmt.Errorf("%s the Kafka broker's data: %w", what, err)
	}
	return nil
}

// Running reports whether the broker was started and hasn't ended.
func (b *Broker) Running() bool { return b.process.Running() }

// PID returns the process id of the broker's Java.
func (b *Broker) PID() int { return b.process.PID() }

package kafkabroker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Data returns the directory with the broker's partition logs and metadata.
func (b *Broker) Data() string { return filepath.Join(b.dir, dataDir) }

// CopyData copies the data of a stopped broker to a directory that doesn't exist yet, like a backup of the
// broker's disk.
func (b *Broker) CopyData(to string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.atRest("copy", func() error { return os.CopyFS(to, os.DirFS(b.Data())) })
}

// PutBackData replaces the data of a stopped broker with a copy from CopyData.
func (b *Broker) PutBackData(from string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.atRest("put back", func() error {
		return errors.Join(os.RemoveAll(b.Data()), os.CopyFS(b.Data(), os.DirFS(from)))
	})
}

// Forget removes all data of a stopped broker, including topics, ACLs and the cluster id. The next
// start begins with empty data.
func (b *Broker) Forget() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.atRest("forget", func() error { return os.RemoveAll(b.Data()) })
}

// atRest calls do, which reads or changes the broker's data. It returns an error if the broker is
// running.
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

// PID returns the process id of the broker's Java process.
func (b *Broker) PID() int { return b.process.PID() }

//go:build unix

package natsserver

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes the lock, which the kernel releases with the process. NATS itself
// does not notice a second server on the same files, and they would destroy them.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New("another process uses it")
	}
	return err
}

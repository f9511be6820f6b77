//go:build unix

package natsserver

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes the lock, which the kernel releases when the process ends. NATS does not
// notice a second server on the same files, and the two would destroy them.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New("another process is using it")
	}
	return err
}

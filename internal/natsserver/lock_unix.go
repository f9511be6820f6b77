//go:build unix

package natsserver

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks the file until the process ends. NATS does not detect a second server that uses the
// same files, and the two servers would destroy them.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New("another process is using it")
	}
	return err
}

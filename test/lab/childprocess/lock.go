package childprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// LockFile opens the file and locks it. The operating system releases the lock when every process that has
// the file open has closed it or ended. This includes child processes that inherited the file. While another
// process holds the lock, LockFile writes a message to log, at once and then every 15 seconds. The message
// contains the id of the other process and the text does, such as "builds etcd", which says what that process
// does while it holds the lock.
func LockFile(ctx context.Context, path string, log io.Writer, does string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	start, next := time.Now(), time.Duration(0)
	retry := time.NewTicker(200 * time.Millisecond)
	defer retry.Stop()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			err = signLock(file)
		}
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if waited := time.Since(start); waited >= next {
			holder, _ := io.ReadAll(io.NewSectionReader(file, 0, 20)) // only for the message
			fmt.Fprintf(log, "waiting for process %s, which %s, once: %s so far\n",
				strings.TrimSpace(string(holder)), does, waited.Round(time.Second))
			next = waited + progressInterval
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, ctx.Err()
		case <-retry.C:
		}
	}
}

// signLock writes the id of this process into the locked file.
func signLock(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

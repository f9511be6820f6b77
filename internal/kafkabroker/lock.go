package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockFile opens the file and takes its lock, which the operating system gives
// back when the file is closed by all who have it, or their processes end.
// While another process holds it, waiting is called at once and then every
// progressInterval.
func lockFile(ctx context.Context, path string, waiting func(waited time.Duration)) (*os.File, error) {
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
			return file, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if waited := time.Since(start); waited >= next {
			waiting(waited.Round(time.Second))
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

//go:build linux || darwin

package observe

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kuberelay/kuberelay/internal/check"
)

// dataDir observes a directory. If the directory does not exist, it observes the nearest parent that does.
func dataDir(path string) check.DataDir {
	d := check.DataDir{Path: path, Free: -1}
	at := path
	for {
		d.Err = unix.Access(at, unix.W_OK|unix.X_OK)
		parent := filepath.Dir(at)
		if !errors.Is(d.Err, fs.ErrNotExist) || parent == at {
			break
		}
		at = parent
	}
	var volume unix.Statfs_t
	if d.Err == nil && unix.Statfs(at, &volume) == nil {
		d.Free = int64(volume.Bavail) * int64(volume.Bsize) //nolint:gosec,unconvert // the types differ between systems
	}
	return d
}

//go:build !linux && !darwin

package observe

import "github.com/kuberelay/kuberelay/internal/check"

// DataDir observes nothing on this system.
func DataDir(path string) check.DataDir { return check.DataDir{Path: path, Free: -1} }

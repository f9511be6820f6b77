//go:build !linux && !darwin

package observe

import "github.com/kuberelay/kuberelay/internal/check"

// dataDir observes nothing on this system.
func dataDir(path string) check.DataDir { return check.DataDir{Path: path, Free: -1} }

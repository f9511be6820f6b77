package main

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// memoryShare of the container's limit is for Go; the rest is for what the kernel
	// counts as ours and Go does not know.
	memoryShare = 0.9

	// collectAt is how much the heap may grow, in percent, before it is collected. Nearly
	// all of it is objects without pointers, that a collection need not go through, so that
	// it costs little to do it early (docs/sizing.md).
	collectAt = 30
)

// limitMemory keeps the process below the limit of its cgroup, and its heap small, unless
// GOMEMLIMIT and GOGC say otherwise.
func limitMemory(log *slog.Logger) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare))
	switch {
	case err != nil: // where there are no cgroups, there is no limit
		log.Debug("the limit of memory is not known", "err", err)
	case limit < math.MaxInt64:
		log.Info("memory is limited", "gomemlimit_bytes", limit)
	}
}

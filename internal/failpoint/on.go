//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var (
	name, count, _ = strings.Cut(os.Getenv("FAILPOINT"), ":")
	left           atomic.Int64
)

func init() {
	n, err := strconv.ParseInt(count, 10, 64)
	if name != "" && (err != nil || n < 1) {
		panic("FAILPOINT is not name:count")
	}
	left.Store(n)
}

// Hit marks a point at which a test can kill the process.
func Hit(at string) {
	if at != name || left.Add(-1) != 0 {
		return
	}
	fmt.Fprintf(os.Stderr, "failpoint %s: dying\n", at)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // a process can always kill itself
	select {}
}

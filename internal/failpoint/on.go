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
	bug            = os.Getenv("PLANTED_BUG")
)

func init() {
	n, err := strconv.ParseInt(count, 10, 64)
	if name != "" && (err != nil || n < 1) {
		panic("FAILPOINT is not name:count")
	}
	left.Store(n)
}

// Hit is called where a test may want the process to die.
func Hit(at string) {
	if at != name || left.Add(-1) != 0 {
		return
	}
	fmt.Fprintf(os.Stderr, "failpoint %s: dying\n", at)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:errcheck // it cannot fail for oneself
	select {}
}

// Bug tells whether the code should behave as if it had this bug.
func Bug(is string) bool { return is == bug }

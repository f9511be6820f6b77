//go:build outage || hostile

package e2e

import (
	"fmt"
	"os"
	"strings"
)

func mb(bytes int64) float64 { return float64(bytes) / 1e6 }

// resident returns the resident memory of the forwarder's process in bytes.
func (f *forwarder) resident() int64 { return f.memory("VmRSS:") }

// peak returns the maximum resident memory of the forwarder's process so far, in bytes.
func (f *forwarder) peak() int64 { return f.memory("VmHWM:") }

func (f *forwarder) memory(line string) int64 {
	f.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.PID()))
	if err != nil {
		f.t.Fatal(err)
	}
	var kb int64
	_, after, _ := strings.Cut(string(status), line)
	if _, err := fmt.Sscan(after, &kb); err != nil {
		f.t.Fatal(err)
	}
	return kb * 1024
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

const (
	// poll is the interval between requests to a process. Each request costs the process CPU time.
	poll = 100 * time.Millisecond
	// stopLimit is how long a process may take to stop cleanly.
	stopLimit = time.Minute
)

// process is a process that the benchmark measures: a forwarder, or a role of this program.
type process struct {
	*childprocess.Process
	address string // address of its HTTP server
	started time.Time
}

// start starts a process. The variable listenAddr tells the process the address for its HTTP server.
func (s *stage) start(name string, env []string, args ...string) (*process, error) {
	address, err := harness.FreePort()
	if err != nil {
		return nil, err
	}
	s.processes++
	p := &process{address: address, Process: &childprocess.Process{
		Name: name, Args: args, Env: append([]string{listenAddr + "=" + address}, env...), Group: s.group, Dir: s.dir,
		LogFile: filepath.Join(s.dir, fmt.Sprintf("%s-%d.log", name, s.processes)), Told: s.out,
	}}
	p.started = time.Now()
	err = p.Start()
	return p, err
}

const listenAddr = "KUBERELAY_LISTEN_ADDR"

// startForwarder starts a forwarder that watches all pods. The variables in more have precedence.
func (s *stage) startForwarder(more ...string) (*process, error) {
	env := append([]string{"KUBECONFIG=" + s.cluster.Kubeconfig(), "KUBERELAY_CLUSTER_NAME=bench", "KUBERELAY_RESOURCES=pods", "KUBERELAY_PPROF=true"}, more...)
	// The shell discards the output of KUBERELAY_SINK=stdout.
	return s.start("forwarder", env, "/bin/sh", "-c", `exec "$0" run >/dev/null`, s.binary)
}

func (p *process) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return p.Stop(ctx)
}

// get sends a request to the process's HTTP server. Any status but 200 is an error.
func (p *process) get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, response.Status)
	}
	return body, err
}

// until polls until reached returns true or an error. It fails if the process ends.
func (p *process) until(ctx context.Context, reached func() (bool, error)) error {
	return p.every(ctx, poll, reached)
}

// every is like until with the given interval.
func (p *process) every(ctx context.Context, interval time.Duration, reached func() (bool, error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		ok, err := reached()
		if ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !p.Running() {
			return fmt.Errorf("%s ended:\n%s", p.Name, p.Tail(20))
		}
	}
}

// ready waits until /readyz returns 200. By then, the forwarder has listed every resource.
func (p *process) ready(ctx context.Context) (body []byte, at time.Time, err error) {
	err = p.until(ctx, func() (bool, error) {
		var err error
		body, err = p.get(ctx, "/readyz")
		return err == nil, nil
	})
	return body, time.Now(), err
}

// idle waits until a forwarder is ready and has nothing to publish, and then for 2 more seconds.
func (p *process) idle(ctx context.Context) error {
	if _, _, err := p.ready(ctx); err != nil {
		return err
	}
	if err := p.until(ctx, func() (bool, error) {
		m, err := p.metrics(ctx)
		return err == nil && m.sum("workqueue_depth", "")+m.sum("kuberelay_dirty_objects", "") == 0, err
	}); err != nil {
		return err
	}
	select {
	case <-time.After(2 * time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// metrics is the text of /metrics.
type metrics string

func (p *process) metrics(ctx context.Context) (metrics, error) {
	body, err := p.get(ctx, "/metrics")
	return metrics(body), err
}

// sum returns the sum of a metric's series for one resource. If resource is empty, it adds up all series.
func (m metrics) sum(name, resource string) (sum float64) {
	labels := `(?:\{[^}]*\})?`
	if resource != "" {
		labels = `\{[^}]*\bresource="` + resource + `"[^}]*\}`
	}
	for _, match := range regexp.MustCompile(`(?m)^`+name+labels+` (\S+)$`).FindAllStringSubmatch(string(m), -1) {
		value, _ := strconv.ParseFloat(match[1], 64) // the exposition format guarantees a number
		sum += value
	}
	return sum
}

// usage is the resource usage of a process since its start.
type usage struct {
	cpu     time.Duration // user and system time
	peak    int64         // resident memory, in bytes
	live    float64       // bytes of the Go heap after a garbage collection
	mallocs float64       // allocations on the Go heap
}

// usage measures the process. It forces a garbage collection only after it has measured the CPU time, the
// peak and the allocations.
func (p *process) usage(ctx context.Context) (u usage, err error) {
	if u.peak, err = readKiB(fmt.Sprintf("/proc/%d/status", p.PID()), "VmHWM"); err != nil {
		return u, err
	}
	m, err := p.metrics(ctx)
	u.cpu = time.Duration(m.sum("process_cpu_seconds_total", "") * float64(time.Second))
	u.mallocs = m.sum("go_memstats_mallocs_total", "")
	for range 2 { // sync.Pool keeps its content for one extra cycle
		if err == nil {
			_, err = p.get(ctx, "/debug/pprof/heap?gc=1")
		}
	}
	if err == nil {
		m, err = p.metrics(ctx)
	}
	u.live = m.sum("go_memstats_heap_alloc_bytes", "")
	return u, err
}

// readKiB reads a value in KiB from a file in /proc and returns it in bytes.
func readKiB(file, name string) (int64, error) {
	text, err := os.ReadFile(file)
	match := regexp.MustCompile(`(?m)^` + name + `:\s*(\d+) kB$`).FindSubmatch(text)
	if err != nil || match == nil {
		return 0, errors.Join(fmt.Errorf("%s has no %s", file, name), err)
	}
	kib, err := strconv.ParseInt(string(match[1]), 10, 64)
	return kib << 10, err
}

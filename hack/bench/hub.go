package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	hubNodes = 3
	// hubPoll is longer than poll, because the benchmark polls many forwarders.
	hubPoll = time.Second
)

func (s *stage) benchNATSHub(ctx context.Context, n int) error {
	return s.benchHub(ctx, n, "NATS through leaf nodes", s.startNATSHub)
}

func (s *stage) benchKafkaHub(ctx context.Context, n int) error {
	return s.benchHub(ctx, n, "Kafka", s.startKafkaHub)
}

// benchHub copies the same pods to a hub under many cluster names, first with one forwarder for each
// cluster, and then with one forwarder for all clusters. It measures the hub while the forwarders
// start, and while one forwarder restarts.
func (s *stage) benchHub(ctx context.Context, n int, bus string, begin func(context.Context) (hub, error)) error {
	section := s.report.add(fmt.Sprintf("%s with %d servers, and %d clusters of %d pods", bus, hubNodes, s.clusters, n), "forwarders",
		"million subjects", "hub CPU, s per million", "hub memory, MB per million", "hub disk, GB per million", "forwarders CPU, s per million", "all ready, s", "all published, s")
	again := s.report.add("One forwarder starts again, "+bus, "forwarders", "clusters on the bus", "ready, s", "hub CPU, s", "forwarder CPU, s", "forwarder read, MB")
	for _, fleet := range []bool{false, true} {
		name := "one for each cluster"
		if fleet {
			name = "one for all clusters"
		}
		s.say("  forwarders: %s", name)
		h, err := begin(ctx)
		if err == nil {
			r := &hubRun{stage: s, hub: h, pods: n, fleet: fleet, name: name, section: section, again: again}
			err = r.measure(ctx)
		}
		if h != nil {
			err = errors.Join(err, h.close())
		}
		if err != nil {
			return fmt.Errorf("forwarders, %s: %w", name, err)
		}
	}
	section.notes = []string{"A subject is one object of one cluster; on Kafka, a key. Memory is resident memory of all servers after the start, without that of the same servers before it."}
	again.notes = []string{"What the forwarder read is everything that its process read: the list of the API server, the checkpoint, files."}
	return nil
}

// hubRun is one run of the benchmark, with one kind of forwarder.
type hubRun struct {
	*stage
	hub            hub
	pods           int
	fleet          bool
	name           string
	section, again *section
	forwarders     []*process
}

func (r *hubRun) measure(ctx context.Context) (err error) {
	defer func() {
		for _, p := range r.forwarders {
			err = errors.Join(err, p.Kill())
		}
	}()
	before, err := r.use()
	if err != nil {
		return err
	}
	if !r.fleet { // alone on the hub, for comparison
		if err := r.startAll(ctx, 1); err != nil {
			return err
		}
		if _, err := r.published(ctx); err != nil {
			return err
		}
		if err := r.startAgain(ctx, 1); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := r.startAll(ctx, r.clusters); err != nil {
		return err
	}
	ready := time.Since(began)
	last, err := r.published(ctx)
	if err != nil {
		return err
	}
	after, err := r.use()
	if err != nil {
		return err
	}
	cpu := time.Duration(0)
	for _, p := range r.forwarders {
		one, err := processUse(p.PID())
		if err != nil {
			return err
		}
		cpu += one.cpu
	}
	millions := float64(r.clusters*r.pods) / 1e6
	per := func(format string, value float64) string { return fmt.Sprintf(format, value/millions) }
	r.section.add(r.name, fmt.Sprintf("%.3f", millions), per("%.0f", (after.cpu-before.cpu).Seconds()), per("%.0f", float64(after.memory-before.memory)/1e6),
		per("%.1f", float64(after.disk-before.disk)/1e9), per("%.0f", cpu.Seconds()), fmt.Sprintf("%.0f", ready.Seconds()), fmt.Sprintf("%.0f", last.Sub(began).Seconds()))
	return r.startAgain(ctx, r.clusters)
}

// startAll starts the forwarders that are missing for the given number of clusters, and waits until all
// forwarders are ready.
func (r *hubRun) startAll(ctx context.Context, clusters int) error {
	common := []string{"KUBERELAY_RESOURCES=pods", "KUBERELAY_STATUS_PAGE=false"}
	start := func(env ...string) error {
		p, err := r.start("forwarder", append(append(common, r.hub.env(len(r.forwarders))...), env...), r.binary, "run")
		r.forwarders = append(r.forwarders, p)
		return err
	}
	if r.fleet {
		directory, err := r.kubeconfigs(clusters)
		if err == nil {
			err = start("KUBERELAY_KUBECONFIG_DIR=" + directory)
		}
		if err != nil {
			return err
		}
	}
	for i := len(r.forwarders); i < clusters && !r.fleet; i++ {
		if err := start("KUBECONFIG="+r.cluster.Kubeconfig(), "KUBERELAY_CLUSTER_NAME="+clusterName(i)); err != nil {
			return err
		}
	}
	return r.each(func(p *process) error {
		return r.await(ctx, p, func() bool { _, err := p.get(ctx, "/readyz"); return err == nil })
	})
}

func clusterName(i int) string { return fmt.Sprintf("cluster-%03d", i) }

// kubeconfigs creates a directory with a copy of the kubeconfig for each cluster.
func (r *hubRun) kubeconfigs(clusters int) (string, error) {
	directory, err := os.MkdirTemp(r.dir, "kubeconfigs-")
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(r.cluster.Kubeconfig())
	for i := range clusters {
		err = errors.Join(err, os.WriteFile(filepath.Join(directory, clusterName(i)), content, 0o600))
	}
	return directory, err
}

func (r *hubRun) each(do func(*process) error) error {
	var all errgroup.Group
	for _, p := range r.forwarders {
		all.Go(func() error { return do(p) })
	}
	return all.Wait()
}

// await is like [process.until] with the interval hubPoll.
func (r *hubRun) await(ctx context.Context, p *process, reached func() bool) error {
	return p.every(ctx, hubPoll, func() (bool, error) { return reached(), nil })
}

// published waits until the bus has all objects, and returns the time at which it detected this.
func (r *hubRun) published(ctx context.Context) (at time.Time, err error) {
	err = r.each(func(p *process) error {
		return r.await(ctx, p, func() bool {
			m, err := p.metrics(ctx)
			want := float64(r.pods)
			if r.fleet {
				want *= float64(r.clusters)
			}
			return err == nil && m.sum("kuberelay_informer_objects", "pods") >= want && m.sum("workqueue_depth", "")+m.sum("kuberelay_dirty_objects", "") == 0
		})
	})
	return time.Now(), err
}

// startAgain stops a forwarder, starts it again, and measures the restart.
func (r *hubRun) startAgain(ctx context.Context, clusters int) error {
	p := r.forwarders[0]
	if err := p.stop(); err != nil {
		return err
	}
	before, err := r.use()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := p.Start(); err != nil {
		return err
	}
	if _, _, err := p.ready(ctx); err != nil {
		return err
	}
	ready := time.Since(began)
	if _, err := r.published(ctx); err != nil {
		return err
	}
	after, err := r.use()
	if err != nil {
		return err
	}
	own, err := processUse(p.PID())
	if err != nil {
		return err
	}
	r.again.add(r.name, strconv.Itoa(clusters), fmt.Sprintf("%.1f", ready.Seconds()), fmt.Sprintf("%.1f", (after.cpu-before.cpu).Seconds()),
		fmt.Sprintf("%.1f", own.cpu.Seconds()), fmt.Sprintf("%.0f", float64(own.read)/1e6))
	return nil
}

// hubUse is the resource usage of the hub or of a process.
type hubUse struct {
	cpu                time.Duration // CPU time since the start of the process
	memory, disk, read int64         // bytes; read counts from the start of the process
}

// use returns the total resource usage of the hub's servers.
func (r *hubRun) use() (sum hubUse, err error) {
	for _, pid := range r.hub.pids() {
		one, err := processUse(pid)
		if err != nil {
			return sum, err
		}
		sum.cpu, sum.memory, sum.read = sum.cpu+one.cpu, sum.memory+one.memory, sum.read+one.read
	}
	for _, dir := range r.hub.dirs() {
		err = cmp.Or(err, filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return nil // a server can remove files during the walk
			}
			if info, err := e.Info(); err == nil {
				sum.disk += info.Size()
			}
			return nil
		}))
	}
	return sum, err
}

// processUse returns the resource usage of a process from the kernel.
func processUse(pid int) (u hubUse, err error) {
	if u.memory, err = readKiB(fmt.Sprintf("/proc/%d/status", pid), "VmRSS"); err != nil {
		return u, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return u, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	for _, field := range fields[11:13] { // utime and stime, in hundredths of a second on Linux
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	io, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err == nil {
		_, err = fmt.Sscanf(string(io), "rchar: %d", &u.read)
	}
	return u, err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/discovery"

	"github.com/kuberelay/kuberelay/hack/bench/pods"
	"github.com/kuberelay/kuberelay/internal/childprocess"
	"github.com/kuberelay/kuberelay/internal/controlplane"
)

// seed is that of all pods.
const seed = 7

// cluster is a control plane with pods in it.
type cluster struct {
	*controlplane.ControlPlane
	cache string // folder of the filled ones
	key   string // what they are made of, their number apart
	log   io.Writer
}

func startCluster(ctx context.Context, dir string, log io.Writer) (*cluster, error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Log: log, EtcdFlags: []string{"--quota-backend-bytes=" + strconv.Itoa(16<<30)}})
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: cp, log: log}
	if err := c.findCache(); err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	return c, nil
}

// findCache: another API server stores objects in another way.
func (c *cluster) findCache() error {
	client, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		return err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return err
	}
	c.key = fmt.Sprintf("pods-v%s-seed%d-%s", pods.Version, seed, version.GitVersion)
	caches, err := os.UserCacheDir()
	c.cache = filepath.Join(caches, "kuberelay", "bench")
	return errors.Join(err, os.MkdirAll(c.cache, 0o755))
}

func (c *cluster) filled(n int) string { return filepath.Join(c.cache, fmt.Sprintf("%s-%d", c.key, n)) }

// hold makes the cluster one of n pods in which nothing has happened since it was filled.
// All its processes are new. The first time it is filled, which takes minutes; then its
// files are kept in the user's cache.
func (c *cluster) hold(ctx context.Context, n int) error {
	if _, err := os.Stat(c.filled(n)); errors.Is(err, fs.ErrNotExist) {
		if err := c.fillOnce(ctx, n); err != nil {
			return fmt.Errorf("fill the cluster with %d pods: %w", n, err)
		}
	}
	return c.RestoreEtcd(ctx, c.filled(n))
}

func (c *cluster) fillOnce(ctx context.Context, n int) error {
	lock, err := childprocess.LockFile(ctx, c.filled(n)+".lock", c.log, "fills a cluster with pods")
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := os.Stat(c.filled(n)); err == nil { // another process has filled it while we waited
		return nil
	}
	from, err := c.largestBelow(n)
	if err != nil {
		return err
	}
	if from > 0 {
		if err := c.RestoreEtcd(ctx, c.filled(from)); err != nil {
			return err
		}
	}
	start := time.Now()
	fmt.Fprintf(c.log, "filling the cluster: pods %d to %d, once ...\n", from, n)
	if err := fill(ctx, c.Config(), from, n, c.log); err != nil {
		return err
	}
	if err := errors.Join(c.CompactEtcd(ctx), c.DefragmentEtcd(ctx)); err != nil {
		return err
	}
	half := c.filled(n) + ".tmp"
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	if err := c.SnapshotEtcd(ctx, half); err != nil {
		return err
	}
	fmt.Fprintf(c.log, "filled in %s; kept in %s\n", time.Since(start).Round(time.Second), c.filled(n))
	return os.Rename(half, c.filled(n))
}

// largestBelow is the number of pods of the fullest cluster to go on from.
func (c *cluster) largestBelow(n int) (largest int, err error) {
	dirs, err := filepath.Glob(c.filled(0)[:len(c.filled(0))-1] + "*")
	for _, dir := range dirs {
		have, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), c.key+"-"))
		if err == nil && have < n {
			largest = max(largest, have)
		}
	}
	return largest, err
}

package main

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/clientgo/leaderelection"
	"github.com/kuberelay/kuberelay/internal/clientgo/typed"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/leader"
	"github.com/kuberelay/kuberelay/internal/operations"
)

// newElection makes the candidate that this process is. It has a client of its own, so
// that a renewal waits for nothing else.
func newElection(cfg config.Config, log *slog.Logger, r prometheus.Registerer) (*leader.Election, error) {
	rc, err := kubeConfig(cfg, "forwarder", log)
	if err != nil {
		return nil, err
	}
	rc.Timeout = cfg.Leader.RenewDeadline / 2 // so that one request that is lost does not cost the lease
	client, err := typed.NewLeases(rc)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	namespace := cfg.Leader.Namespace
	if namespace == "" {
		if namespace, err = kubeNamespace(); err != nil {
			return nil, fmt.Errorf("find the namespace of the lease: %w; set KUBERELAY_LEASE_NAMESPACE", err)
		}
	}
	name, err := identity(os.Getenv, os.Hostname)
	if err != nil {
		return nil, fmt.Errorf("find a name to hold the lease by: %w; set POD_NAME", err)
	}
	leaderelection.SetProvider(operations.LeaderElectionMetrics(r))
	return leader.New(leader.Config{
		Leases: client, Namespace: namespace, Name: cfg.Leader.LeaseName, Identity: name,
		LeaseDuration: cfg.Leader.LeaseDuration, RenewDeadline: cfg.Leader.RenewDeadline, RetryPeriod: cfg.Leader.RetryPeriod,
		Now: time.Now, Logger: log, Registerer: r,
	}), nil
}

// identity names this process: the pod, or the host, and what tells it from those that
// the same pod has had before.
func identity(getenv func(string) string, hostname func() (string, error)) (string, error) {
	name := getenv("POD_NAME")
	if name == "" {
		var err error
		if name, err = hostname(); err != nil {
			return "", err
		}
	}
	return name + "_" + strings.ToLower(rand.Text()[:8]), nil
}

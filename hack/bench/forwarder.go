package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// poll is how often it is looked what the forwarder has reached. To be asked for /readyz
// every 20 ms was one part in fifteen of what a first sync cost it; /metrics, of which a scrape
// takes about a millisecond, is only asked once the bus holds as many messages as there are
// objects.
const poll = 100 * time.Millisecond

// forwarder is a process of the built binary, as a black box.
type forwarder struct {
	*process
	url    string
	client *http.Client
}

// startForwarder starts one with more variables.
func (s *stage) startForwarder(ctx context.Context, more ...string) (*forwarder, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	env := append([]string{
		"KUBECONFIG=" + s.cluster.Kubeconfig(), "KUBERELAY_CLUSTER_NAME=bench", "KUBERELAY_RESOURCES=pods",
		"KUBERELAY_LISTEN_ADDR=" + address, "KUBERELAY_PPROF=true",
	}, more...)
	p, err := startProcess(ctx, s.group, s.dir, "forwarder", false, env, s.binary, "run")
	if err != nil {
		return nil, err
	}
	return &forwarder{process: p, url: "http://" + address, client: &http.Client{Transport: &http.Transport{}}}, nil
}

// freeAddress is free at this moment.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (f *forwarder) get(ctx context.Context, path string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+path, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := f.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// until polls until reached, or the process has ended. Errors of reached are none of an
// endpoint that is not served yet.
func (f *forwarder) until(ctx context.Context, reached func() (bool, error)) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		ok, err := reached()
		if ok || err != nil {
			return err
		}
		if err := f.alive(); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitReady returns when /readyz says that every informer has synced.
func (f *forwarder) awaitReady(ctx context.Context) (at time.Time, err error) {
	err = f.until(ctx, func() (bool, error) {
		status, _, err := f.get(ctx, "/readyz")
		return err == nil && status == http.StatusOK, nil
	})
	return time.Now(), err
}

// awaitPublished returns when so many events of pods have been acknowledged. Stored
// is how many messages the bus has, as a reason not to ask yet.
func (f *forwarder) awaitPublished(ctx context.Context, n int, stored func(context.Context) (int, error)) (at time.Time, m metrics, err error) {
	err = f.until(ctx, func() (bool, error) {
		if have, err := stored(ctx); err != nil || have < n {
			return false, err
		}
		at = time.Now()
		if m, err = f.metrics(ctx); err != nil {
			return false, err
		}
		return m.sum("kuberelay_events_published_total", "pods") >= float64(n), nil
	})
	return at, m, err
}

// metrics is what /metrics says.
type metrics map[string]*dto.MetricFamily

func (f *forwarder) metrics(ctx context.Context) (metrics, error) {
	status, body, err := f.get(ctx, "/metrics")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("/metrics: %d", status)
	}
	if err != nil {
		return nil, err
	}
	return parseMetrics(body)
}

// sum adds up the series of a counter or a gauge, those of one resource unless it is "".
func (m metrics) sum(name, resource string) (sum float64) {
	for _, series := range m[name].GetMetric() {
		matches := resource == ""
		for _, l := range series.GetLabel() {
			matches = matches || l.GetName() == "resource" && l.GetValue() == resource
		}
		if matches {
			sum += series.GetCounter().GetValue() + series.GetGauge().GetValue()
		}
	}
	return sum
}

func (m metrics) memory() memory {
	return memory{Live: uint64(m.sum("go_memstats_heap_alloc_bytes", "")), Mallocs: uint64(m.sum("go_memstats_mallocs_total", ""))}
}

// memory forces garbage collections, and tells what they have left.
func (f *forwarder) memory(ctx context.Context) (memory, error) {
	for range 2 { // pools keep what they have for one cycle more
		if status, _, err := f.get(ctx, "/debug/pprof/heap?gc=1"); err != nil || status != http.StatusOK {
			return memory{}, errors.Join(err, fmt.Errorf("the heap profile: %d", status))
		}
	}
	m, err := f.metrics(ctx)
	return m.memory(), err
}

func parseMetrics(text []byte) (metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(text))
}

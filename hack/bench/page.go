package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	pageTime   = time.Minute
	pageRounds = 5
	// pageScrape is the interval at which the benchmark requests the metrics and the status.
	pageScrape = 15 * time.Second

	// maxObserved is the share of a core that status, page and metrics may use together.
	maxObserved = 0.01
)

// benchPage measures the cost of observing a forwarder that watches all resources of a cluster. The
// observer keeps a status page open, and requests the metrics and the status at the interval pageScrape.
// Runs with and without an observer alternate.
func (s *stage) benchPage(ctx context.Context, _ int) error {
	rounds := s.rounds
	if rounds == 0 {
		rounds = pageRounds
	}
	var with, without observed
	for range rounds {
		if err := errors.Join(s.runPage(ctx, &without, nil, "KUBERELAY_STATUS_PAGE=false"), s.runPage(ctx, &with, observe)); err != nil {
			return err
		}
	}
	s.report.addPage(&with, &without)
	return nil
}

// observed has the CPU usage of a forwarder, in shares of a core, and the data that the page received, in
// bytes per second.
type observed struct{ cpu, page series }

// runPage changes objects while observe observes the forwarder. If observe is nil, nothing observes it.
func (s *stage) runPage(ctx context.Context, o *observed, observe func(context.Context, *process) (bytes int64, err error), env ...string) (err error) {
	bus, err := s.startNATS(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bus.close()) }()
	f, err := s.startForwarder(append(append(bus.env(), "KUBERELAY_RESOURCES=*", "KUBERELAY_NAMESPACES="+liveNamespace), env...)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	c := changer{}
	before, err := s.calm(ctx, f, &c)
	if err != nil {
		return err
	}
	began := time.Now()
	stop, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	var bytes int64
	var both errgroup.Group
	both.Go(func() error {
		return pace(ctx, stop, liveRate, func(ctx context.Context, i int) error { return c.change(ctx, liveObject(i)) })
	})
	if observe != nil {
		both.Go(func() (err error) { bytes, err = observe(stop, f); return err })
	}
	if err := both.Wait(); err != nil {
		return err
	}
	after, err := f.metrics(ctx)
	if err != nil {
		return err
	}
	seconds := time.Since(began).Seconds()
	const cpu, published = "process_cpu_seconds_total", "kuberelay_events_published_total"
	if rate := (after.sum(published, "") - before.sum(published, "")) / seconds; rate < 0.8*liveRate {
		return fmt.Errorf("%.0f events were published per second, want %.0f", rate, liveRate)
	}
	o.cpu = append(o.cpu, (after.sum(cpu, "")-before.sum(cpu, ""))/seconds)
	o.page = append(o.page, float64(bytes)/seconds)
	return nil
}

// observe opens the page, and requests the metrics and the status at the interval pageScrape, until ctx
// ends. It returns the number of bytes that the page received.
func observe(ctx context.Context, f *process) (bytes int64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.address+"/api/v1/status/stream", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the page: %s", response.Status)
	}
	ask := func() (err error) {
		for _, path := range []string{"/metrics", "/api/v1/status"} {
			_, failed := f.get(context.WithoutCancel(ctx), path)
			err = errors.Join(err, failed)
		}
		return err
	}
	asked := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(pageScrape)
		defer ticker.Stop()
		err := ask()
		for ctx.Err() == nil && err == nil {
			select {
			case <-ctx.Done():
			case <-ticker.C:
				err = ask()
			}
		}
		asked <- err
	}()
	lines, messages := bufio.NewReader(response.Body), 0
	for ctx.Err() == nil {
		line, err := lines.ReadString('\n')
		if err != nil {
			if ctx.Err() == nil {
				return bytes, errors.Join(fmt.Errorf("the page ended: %w", err), <-asked)
			}
			break
		}
		bytes += int64(len(line))
		if strings.HasPrefix(line, "event: ") {
			messages++
		}
	}
	if messages < int(pageTime.Seconds()) {
		err = fmt.Errorf("the page got %d messages in %s", messages, pageTime)
	}
	return bytes, errors.Join(err, <-asked)
}

func (r *report) addPage(with, without *observed) {
	section := r.add(fmt.Sprintf("Observing a forwarder of all resources, %.0f changes per second", liveRate), "", "CPU, % of a core", "page, kB per second")
	percent := func(s series) (p series) {
		for _, v := range s {
			p = append(p, 100*v)
		}
		return p
	}
	kilobytes := series{}
	for _, v := range with.page {
		kilobytes = append(kilobytes, v/1000)
	}
	section.add("not observed, without the page", percent(without.cpu).show("%.2f"), "–")
	section.add("page open, metrics and status every 15 s", percent(with.cpu).show("%.2f"), kilobytes.show("%.1f"))
	section.notes = []string{fmt.Sprintf("CPU time with the page, compared with that without: %s ×.", with.cpu.per(without.cpu).show("%.3f"))}
	extra := series{100 * (with.cpu.median() - without.cpu.median())}
	r.atMost(fmt.Sprintf("status, page and metrics together cost at most %.0f %% of a core", 100*maxObserved), extra, 100*maxObserved, "%.2f %%")
}

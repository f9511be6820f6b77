// Bench measures the forwarder from the outside: "make bench".
//
// It fills a real API server with pods that are as large, and as different from each
// other, as real ones (package pods), and runs the built forwarder. Every contender is
// a process of its own and is measured in the same way: wall time from exec, CPU time
// and peak memory from the kernel. Contenders run in turn, because only figures of one
// run and one machine can be compared.
//
// BENCH selects the benchmarks, by default all:
//
//   - sync: the first sync, beside the same watch read and thrown away, which is the
//     floor, and beside a plain informer that publishes in its handler
//   - latency: a few changes per second on an idle forwarder
//   - live: changes during a first sync, compared with changes on an idle forwarder
//   - frozen: changes while the Kafka broker that leads one partition is frozen
//   - points: the cost of consistency points and tombstones on Kafka
//   - page: the cost of an open status page, scrapes of the metrics and requests of the status
//
// PODS are the numbers of pods. ROUNDS is the number of runs of each contender of sync,
// by default 3, or 1 from 50,000 pods on. CONTENDERS selects the contenders of sync. OUT
// is a file for the report, in Markdown.
//
// The report ends with the promises. Bench exits with 1 if one of them is not met.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

func main() {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go's errors are returned as well
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		return runRole(ctx, args[0], args[1:])
	}
	s, err := readSettings(os.Getenv)
	if err != nil {
		return err
	}
	return bench(ctx, s, os.Stdout)
}

// settings are those of the environment.
type settings struct {
	benchmarks, contenders []string
	pods                   []int // ascending
	rounds                 int   // 0: by the number of pods
	out                    string
}

func readSettings(getenv func(string) string) (s settings, err error) {
	var all []string
	for _, c := range contenders {
		all = append(all, c.key)
	}
	if s.benchmarks, err = choose("BENCH", getenv("BENCH"), []string{"sync", "latency", "live", "frozen", "points", "page"}); err != nil {
		return s, err
	}
	if s.contenders, err = choose("CONTENDERS", getenv("CONTENDERS"), all); err != nil {
		return s, err
	}
	numbers := strings.Fields(getenv("PODS"))
	if len(numbers) == 0 {
		numbers = []string{"20000", "100000"}
	}
	for _, text := range numbers {
		n, err := strconv.Atoi(text)
		if err != nil || n < liveObjects {
			return s, fmt.Errorf("PODS has %q: use numbers from %d on, separated by spaces", text, liveObjects)
		}
		s.pods = append(s.pods, n)
	}
	slices.Sort(s.pods)
	if text := getenv("ROUNDS"); text != "" {
		if s.rounds, err = strconv.Atoi(text); err != nil || s.rounds < 1 {
			return s, fmt.Errorf("ROUNDS is %q: use a number from 1 on", text)
		}
	}
	if s.out = getenv("OUT"); s.out != "" {
		err = os.WriteFile(s.out, nil, 0o644) // fails now rather than after an hour
	}
	return s, err
}

// choose reads the names in a variable, by default all.
func choose(variable, text string, all []string) ([]string, error) {
	names := strings.Fields(text)
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("%s has %q: use some of %s, separated by spaces", variable, name, strings.Join(all, " "))
		}
	}
	if len(names) == 0 {
		return all, nil
	}
	return names, nil
}

// stage is what the benchmarks run on.
type stage struct {
	settings
	out               io.Writer
	dir               string // removed at the end
	self, binary      string // this program and the forwarder
	group             *childprocess.Group
	cluster           *cluster
	broker            *kafkaCluster // of sync, nil until it is needed
	processes, topics int           // so far
	report            report
}

func bench(ctx context.Context, settings settings, out io.Writer) (err error) {
	s := &stage{settings: settings, out: out}
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	s.binary = filepath.Join(filepath.Dir(s.self), "forwarder")
	if s.dir, err = os.MkdirTemp("", "kuberelay-bench-"); err != nil {
		return err
	}
	if s.group, err = childprocess.NewGroup(s.dir); err != nil {
		return errors.Join(err, os.RemoveAll(s.dir))
	}
	defer func() { err = errors.Join(err, s.group.Close()) }()
	s.say("==> starting a control plane")
	if s.cluster, err = startCluster(ctx, s.dir, out); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cluster.Stop()) }()
	defer func() { err = errors.Join(err, s.broker.close()) }()
	for i, n := range s.pods {
		if err = s.perform(ctx, n, i == 0); err != nil {
			err = fmt.Errorf("%d pods: %w", n, err)
			break
		}
	}
	if len(s.report.sections) == 0 {
		return err
	}
	return errors.Join(err, s.report.conclude(out, s.settings.out)) // what was measured before an error took long
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// perform runs the benchmarks on n pods. The streams of changes of some are the same in
// every cluster, so they run in the first only.
func (s *stage) perform(ctx context.Context, n int, first bool) error {
	s.say("==> preparing a cluster of %d pods", n)
	if err := s.cluster.hold(ctx, n); err != nil {
		return err
	}
	for _, b := range []struct {
		name  string
		every bool
		run   func(context.Context, int) error
	}{{"sync", true, s.benchSync}, {"latency", false, s.benchLatency}, {"live", true, s.benchLive}, {"frozen", false, s.benchFrozen}, {"points", false, s.benchPoints}, {"page", false, s.benchPage}} {
		if !slices.Contains(s.benchmarks, b.name) || !b.every && !first {
			continue
		}
		s.say("==> %s, %d pods", b.name, n)
		if err := b.run(ctx, n); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	return nil
}

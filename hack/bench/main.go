// Bench measures the forwarder from the outside. Run it with "make bench".
//
// It fills a real API server with realistic pods (package pods) and runs the built forwarder. Each
// contender is a separate process, and Bench measures all of them in the same way: the wall time from
// exec, and the CPU time and peak memory from the kernel. The contenders run in turn, because only
// figures from the same run and machine are comparable.
//
// These environment variables select the benchmarks and contenders. Lists are separated by spaces.
//
//   - BENCH: the benchmarks. The default is all of them except hub-nats and hub-kafka
//   - PODS: the numbers of pods. The default is 20000 and 100000
//   - ROUNDS: the number of rounds of sync, live, points and page. The default is 3 for sync with fewer
//     than 50,000 pods and 1 with more, 3 for live, and 5 for points and page
//   - CLUSTERS: the number of clusters in hub-nats and hub-kafka. The default is 50
//   - CONTENDERS: the contenders in sync. The default is all of them
//   - OUT: a file for the report, in Markdown
//
// The benchmarks:
//
//   - sync: the first sync, compared with the floor, which reads the same watch and discards it,
//     and with a plain informer that publishes in its handler
//   - latency: a few changes per second on an idle forwarder
//   - live: changes during a first sync, compared with changes on an idle forwarder
//   - frozen: changes while the Kafka broker that leads one partition is frozen
//   - points: the cost of consistency points and tombstones on Kafka
//   - page: the cost of an open status page, of scrapes of the metrics, and of requests for the status
//   - hub-nats, hub-kafka: the cost of many clusters on three servers or brokers
//
// The report ends with the promises. Bench exits with code 1 if a promise is not met.
package main

import (
	"cmp"
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
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go also returns its errors
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
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

// settings has the settings from the environment.
type settings struct {
	benchmarks, contenders []string
	pods                   []int // ascending
	rounds                 int   // 0 selects the default of each benchmark
	clusters               int   // number of clusters on a hub
	out                    string
}

func readSettings(getenv func(string) string) (s settings, err error) {
	var all []string
	for _, c := range contenders {
		all = append(all, c.key)
	}
	if s.benchmarks, err = choose("BENCH", cmp.Or(getenv("BENCH"), "sync latency live frozen points page"), []string{"sync", "latency", "live", "frozen", "points", "page", "hub-nats", "hub-kafka"}); err != nil {
		return s, err
	}
	if s.clusters, err = strconv.Atoi(cmp.Or(getenv("CLUSTERS"), "50")); err != nil || s.clusters < 1 {
		return s, fmt.Errorf("CLUSTERS is %q: use a number from 1 on", getenv("CLUSTERS"))
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
		err = os.WriteFile(s.out, nil, 0o644) // a wrong path fails now and not after an hour
	}
	return s, err
}

// choose reads a list of names from a variable. An empty list means all.
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

// stage is the environment that the benchmarks share.
type stage struct {
	settings
	out               io.Writer
	dir               string // removed at the end
	self, binary      string // paths of this program and of the forwarder
	group             *childprocess.Group
	cluster           *cluster
	broker            *kafkaCluster // used by sync; nil until it is needed
	processes, topics int           // number of processes and topics so far
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
	return errors.Join(err, s.report.conclude(out, s.settings.out)) // even after an error, because the measurements are expensive
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// perform runs the benchmarks on a cluster of n pods. Benchmarks that don't depend on the number of pods
// run only on the first cluster.
func (s *stage) perform(ctx context.Context, n int, first bool) error {
	s.say("==> preparing a cluster of %d pods", n)
	if err := s.cluster.hold(ctx, n); err != nil {
		return err
	}
	for _, b := range []struct {
		name  string
		every bool
		run   func(context.Context, int) error
	}{{"sync", true, s.benchSync}, {"latency", false, s.benchLatency}, {"live", true, s.benchLive}, {"frozen", false, s.benchFrozen}, {"points", false, s.benchPoints}, {"page", false, s.benchPage}, {"hub-nats", true, s.benchNATSHub}, {"hub-kafka", true, s.benchKafkaHub}} {
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

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// Publishing alone is measured by the benchmarks of the publishers: the same messages
// through ours, and through the client that it is built on, in turn.

// benchmark is a line of «go test -bench».
type benchmark struct {
	name    string // without Benchmark and the number of CPUs
	metrics map[string]float64
}

func (s *stage) benchPublishing(ctx context.Context) error {
	s.say("==> publishing alone: ours and the bare clients in turn")
	section := section{title: "Publishing alone"}
	section.table.head = []string{"", "events/s", "bare client, events/s", "ratio"}
	for _, bus := range []struct{ name, dir, decides, promise string }{
		{"NATS", "nats", "Publish/binary", "publishing alone on NATS ≥ 80 % of nats.go's, with the same compare-and-set"},
		{"Kafka", "kafka", "Publish/zstd", "publishing alone on Kafka ≥ 80 % of kafka-go's bare Writer"},
	} {
		found, err := s.goBench(ctx, "./internal/publish/"+bus.dir)
		if err != nil {
			return err
		}
		var decides series
		for _, b := range found {
			section.table.add(bus.name+" "+b.name, fmt.Sprintf("%.0f", b.metrics["events/s"]), fmt.Sprintf("%.0f", b.metrics["bare-events/s"]),
				fmt.Sprintf("%.2f", b.metrics["ratio"]))
			if b.name == bus.decides {
				decides = append(decides, b.metrics["ratio"])
			}
		}
		s.report.atLeast(bus.promise, decides, 0.8, "%.2f")
	}
	s.report.add(section)
	return nil
}

func (s *stage) goBench(ctx context.Context, pkg string) ([]benchmark, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkPublish$", "-benchtime", "10x", pkg)
	cmd.Dir = s.root
	output, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, output)
	}
	return parseBenchmarks(output)
}

// parseBenchmarks reads the format that benchstat does:
// https://go.googlesource.com/proposal/+/master/design/14313-benchmark-format.md
func parseBenchmarks(output []byte) (found []benchmark, err error) {
	for line := range bytes.Lines(output) {
		fields := strings.Fields(string(line))
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		b := benchmark{name: name, metrics: map[string]float64{}}
		for i := 2; i+1 < len(fields); i += 2 {
			if b.metrics[fields[i+1]], err = strconv.ParseFloat(fields[i], 64); err != nil {
				return nil, fmt.Errorf("the benchmark says %q: %w", line, err)
			}
		}
		found = append(found, b)
	}
	return found, nil
}

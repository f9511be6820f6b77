// Command run runs one history of the simulator, a number of histories, or histories for a given time. If a
// history fails, the command shrinks the failed history with the lowest seed, prints its log, and exits with
// status 1.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/kuberelay/kuberelay/test/simulate"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var r simulate.Range
	first := flags.String("seed", "1", "the first seed; without -seeds and -time, the only one; or a path, such as 17/120:4711")
	flags.Uint64Var(&r.Seeds, "seeds", 0, "the number of seeds, 0 for no limit")
	flags.DurationVar(&r.Time, "time", 0, "how long to run, 0 for no limit")
	flags.IntVar(&r.Jobs, "jobs", 0, "histories at once, 0 for the number of CPUs")
	flags.BoolVar(&r.Explore, "explore", false, "branch off from earlier histories at new situations")
	sink := flags.String("sink", string(simulate.NATS), "nats or kafka")
	story := flags.Bool("story", true, "shrink the first failing history and print its log")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if r.Sink = simulate.Sink(*sink); r.Sink != simulate.NATS && r.Sink != simulate.Kafka {
		fmt.Fprintf(stderr, "-sink=%s: want nats or kafka\n", *sink)
		return 2
	}
	var err error
	if r.First, err = simulate.ParsePath(*first); err != nil {
		fmt.Fprintf(stderr, "-seed: %v\n", err)
		return 2
	}
	if r.Explore && r.Seeds == 0 && r.Time == 0 {
		fmt.Fprintln(stderr, "-explore branches off from earlier histories: add -seeds (SEEDS=10000) or -time (SECONDS=60)")
		return 2
	}
	if r.Seeds == 0 && r.Time == 0 {
		r.Seeds = 1
	}
	began := time.Now()
	result := r.Run()
	seconds := time.Since(began).Seconds()
	fmt.Fprintf(stdout, "%d histories, %.0f a second, with %d steps and %d events each\n",
		result.Histories, float64(result.Histories)/seconds, result.Steps/max(1, result.Histories), result.Events/max(1, result.Histories))
	if result.Failed == nil {
		return 0
	}
	follows := ""
	if result.Failed.Story != "" {
		follows = fmt.Sprintf(" (it follows the story %s)", result.Failed.Story)
	}
	fmt.Fprintf(stdout, "seed %s fails, after %d histories%s: %v\n", result.Failed.Path, result.After, follows, result.Failed.Wrong)
	if *story {
		fmt.Fprintln(stdout, strings.Join(simulate.Shrink(*result.Failed), "\n"))
	}
	return 1
}

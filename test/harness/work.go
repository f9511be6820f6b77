package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// Work is the work that a process has done since its start, according to its metrics.
type Work struct {
	Decisions   float64
	BusReads    float64
	Publishes   float64 // publishes with a result from the bus, whether acknowledged or not
	Points      float64 // consistency points; on Kafka, each takes one message per partition
	APIRequests float64 // including retries and watches
	CPU         float64 // seconds

	Changes float64 // changes that arrived through watches
	Objects float64 // current number of objects in the informers

	outside float64       // out-of-scope objects on the bus, see kuberelay_out_of_scope_objects
	at      time.Time     // after the metrics were read
	up      time.Duration // time since the start of the process
	leads   bool          // the process writes to the bus
	missing []string      // metrics that the process should export but doesn't
}

// The metrics that [Forwarder.Work] reads. Where the name has a %s, it contains the name of the bus.
const (
	decisionsMetric = "kuberelay_decisions_total"
	readsMetric     = "kuberelay_%s_reads_total"
	publishesMetric = "kuberelay_%s_publishes_total"
	pointsMetric    = "kuberelay_resolved_total"
	requestsMetric  = "rest_client_requests_total"
	cpuMetric       = "process_cpu_seconds_total"
	startMetric     = "process_start_time_seconds"
	changesMetric   = "kuberelay_informer_watch_events_total"
	objectsMetric   = "kuberelay_informer_objects"
	outsideMetric   = "kuberelay_out_of_scope_objects"
	leaderMetric    = "kuberelay_leader" // only with leader election
)

// Work reads the metrics. A metric that the process doesn't export counts as 0. For the metrics of a
// leader, this value is correct in a standby forwarder. Rest returns an error if any other metric is
// missing.
func (f *Forwarder) Work(ctx context.Context) (Work, error) {
	all, err := f.scrape(ctx)
	if err != nil {
		return Work{}, err
	}
	at := time.Now()
	bus := cmp.Or(f.options.Set["SINK"], "nats")
	reads, publishes := fmt.Sprintf(readsMetric, bus), fmt.Sprintf(publishesMetric, bus)
	values := map[string]float64{}
	for _, name := range []string{
		decisionsMetric, reads, publishes, pointsMetric, requestsMetric, cpuMetric, startMetric, changesMetric, objectsMetric, outsideMetric, leaderMetric,
	} {
		value, found, err := sum(all, name)
		if err != nil {
			return Work{}, err
		}
		if found {
			values[name] = value
		}
	}
	w := Work{
		Decisions: values[decisionsMetric], BusReads: values[reads], Publishes: values[publishes], Points: values[pointsMetric],
		APIRequests: values[requestsMetric], CPU: values[cpuMetric],
		Changes: values[changesMetric], Objects: values[objectsMetric], outside: values[outsideMetric],
		at: at, up: time.Duration((float64(at.UnixNano())/1e9 - values[startMetric]) * float64(time.Second)),
	}
	needed := []string{requestsMetric, cpuMetric, startMetric}
	leads, elects := values[leaderMetric]
	w.leads = !elects || leads == 1
	if w.leads && bus != "stdout" {
		needed = append(needed, reads, publishes)
	}
	if w.leads && w.Objects > 0 { // each object has caused a decision; the other two metrics only tighten the bounds
		needed = append(needed, decisionsMetric)
	}
	for _, name := range needed {
		if _, found := values[name]; !found {
			w.missing = append(w.missing, name)
		}
	}
	return w, nil
}

// Rest watches an idle forwarder for the length of window. It returns a [WorkError] if the forwarder
// exceeds the bounds in this file. Each change of the cluster in the window raises the bounds by the
// cost of a change. Rest doesn't wait until the forwarder is idle: call it when the bus and the
// cluster agree. Rest returns another error if the process restarts in the window or doesn't export
// a metric that counts its work.
func (f *Forwarder) Rest(ctx context.Context, window time.Duration) error {
	starts := f.Starts() // process_start_time_seconds also changes when the system clock is set
	began := time.Now()
	begin, err := f.Work(ctx)
	if err != nil {
		return fmt.Errorf("watch the forwarder at rest: %w", err)
	}
	begin.at = began // otherwise the bounds would not allow for the work during a slow response
	timer := time.NewTimer(window)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("watch the forwarder at rest: %w", ctx.Err())
	case <-timer.C:
	}
	end, err := f.Work(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("watch the forwarder at rest: %w", err)
	case f.Starts() != starts:
		return errors.New("watch the forwarder at rest: it was restarted")
	case len(end.missing) > 0 && begin.leads == end.leads: // a new leader may not have opened the bus yet
		return fmt.Errorf("watch the forwarder at rest: it does not export %s", strings.Join(end.missing, ", "))
	}
	return f.check(begin, end)
}

// The bounds. Each bound allows some work in any window, plus the known cost of each change and each
// round over all objects. An idle forwarder stays far below the bounds. A loop without a pause makes
// thousands of decisions, or tens of requests, per second.
const (
	// someDecisions is for retries of objects that can't be published, which happen every
	// RETRY_MAX_DELAY (2 s in tests), and for work in progress when the window begins.
	someDecisions = 20.0
	// decisionsPerChange allows for the change itself, the check after its acknowledgement, the
	// delete and the create of a recreated object, and the reconciliation that a removal triggers.
	decisionsPerChange = 4.0
	// decisionsPerRound is 1 because a resync or a refresh enqueues each object once. The
	// reconciliation after a refresh enqueues only objects that differ. In an idle forwarder, no
	// object differs.
	decisionsPerRound = 1.0
	extraCached       = 60.0

	// someReads allows for the claim, which is read every 10 s, and for a snapshot marker at the
	// beginning and the end of a snapshot.
	someReads = 5.0
	// readsPerChange allows for a conflict, or for a delete whose last state is only on the bus. Each
	// of these requires one message to be read.
	readsPerChange = 1.0
	// readsPerRefresh allows for the messages that a refresh reads: the claim, the checkpoint, the
	// messages after the checkpoint that the stream's leader holds, the messages that the reader of
	// the checkpoint missed, and a snapshot marker for each resource. Tests that refresh often have
	// at most six resources. On Kafka, these reads take a few requests for each partition of each
	// topic.
	readsPerRefresh      = 10.0
	kafkaReadsPerRefresh = 60.0

	// somePublishes is for the same retries as someDecisions.
	somePublishes = 10.0
	// publishesPerChange allows for a deleted and a created event, or for a deleted event and its
	// tombstone.
	publishesPerChange = 2.0
	// maxPartitions is the maximum number of messages in a consistency point.
	maxPartitions = 12.0

	// someRequests allows for discovery and reopened watches. After a change of a
	// CustomResourceDefinition or an APIService, discovery sends up to three requests, five times in
	// seven seconds. Each watch may also be reopened.
	someRequests = 20.0
	// requestsPerSecond allows for discovery without a watch of the definitions, which sends three
	// requests every 2 s, and for retries of forbidden resources.
	requestsPerSecond = 4.0
	// requestsPerRetryPeriod allows for a standby forwarder, which reads the lease at most four
	// times in each LEASE_RETRY_PERIOD. Jitter lowers this number. A leader renews the lease once in
	// each period.
	requestsPerRetryPeriod = 4.0
	// requestsPerChange allows for the access checks that a change of a definition or of a namespace
	// triggers.
	requestsPerChange = 2.0

	// The CPU time of a process doesn't depend on the load of the machine. An idle forwarder uses
	// less than 0.01 of a core. A scrape of the metrics takes a few milliseconds, and a garbage
	// collection takes more.
	someCPU      = 0.3 // seconds
	cpuPerSecond = 0.05
	cpuPerChange = 0.005
	cpuPerObject = 0.001 // for each object in a round
	// raceCost is the factor by which the race detector raises CPU time.
	raceCost = 4.0
)

// check compares the work between two readings with the bounds.
func (f *Forwarder) check(begin, end Work) error {
	seconds := end.at.Sub(begin.at).Seconds()
	changes := since(begin.Changes, end.Changes)
	resyncs, refreshes := f.rounds(begin, end)
	objects := (resyncs + refreshes) * f.cached(max(begin.Objects, end.Objects))
	reads := readsPerRefresh * refreshes
	if f.options.Set["SINK"] == "kafka" {
		reads = kafkaReadsPerRefresh * refreshes
	}
	cpu := someCPU + cpuPerSecond*seconds + cpuPerChange*changes + cpuPerObject*objects
	if RaceEnabled {
		cpu *= raceCost
	}
	// Each refresh reads every out-of-scope object on the bus from the API server.
	outside := refreshes * max(begin.outside, end.outside)
	table := &WorkError{Seconds: seconds, Changes: changes, Rounds: resyncs + refreshes, Lines: []WorkLine{
		{"decisions", since(begin.Decisions, end.Decisions), someDecisions + decisionsPerChange*changes + decisionsPerRound*objects},
		{"bus reads", since(begin.BusReads, end.BusReads), someReads + readsPerChange*changes + reads},
		{"publishes", since(begin.Publishes, end.Publishes), somePublishes + publishesPerChange*changes + maxPartitions*since(begin.Points, end.Points)},
		{"API requests", since(begin.APIRequests, end.APIRequests), someRequests + requestsPerSecond*seconds + requestsPerRetryPeriod*f.retryPeriods(seconds) + requestsPerChange*changes + outside},
		{"CPU seconds", since(begin.CPU, end.CPU), cpu},
	}}
	for _, l := range table.Lines {
		if l.Done > l.Bound {
			return table
		}
	}
	return nil
}

// cached returns an upper bound for the number of objects in the informers. The argument selected is
// the number that the metric counts. A filter, namespaces or references exclude objects that cost a
// decision anyway. Tests exclude at most as many objects as they select, plus extraCached.
func (f *Forwarder) cached(selected float64) float64 {
	for _, setting := range []string{"FILTER", "NAMESPACES", "EXCLUDE_NAMESPACES", "NAMESPACE_SELECTOR", "FOLLOW"} {
		if f.options.Set[setting] != "" {
			return 2*selected + extraCached
		}
	}
	return selected
}

// since returns the growth of a counter. A counter that shrank was reset at the start of a
// leadership term.
func since(begin, end float64) float64 {
	if end < begin {
		return end
	}
	return end - begin
}

// rounds returns an upper bound for the number of rounds over all objects between two readings. It
// counts resyncs and refreshes of the checkpoint. A window of n periods contains at most n+1 ticks.
// The first round may have started before the window. With leader election, a new term processes all
// objects when it begins, and refreshes the checkpoint after the duration of a lease.
func (f *Forwarder) rounds(begin, end Work) (resyncs, refreshes float64) {
	ticks := func(setting string) float64 {
		period, err := time.ParseDuration(f.options.Set[setting])
		if err != nil {
			period = 10 * time.Minute // the default of both settings
		}
		if period <= 0 || end.up < period {
			return 0
		}
		return 1 + float64(end.at.Sub(begin.at)/period)
	}
	resyncs, refreshes = ticks("RESYNC_PERIOD"), ticks("CHECKPOINT_REFRESH")
	if f.options.Set["LEADER_ELECTION"] == "true" {
		resyncs++
		refreshes++
	}
	return resyncs, refreshes
}

// retryPeriods returns the number of the election's retry periods in the given number of seconds.
func (f *Forwarder) retryPeriods(seconds float64) float64 {
	if f.options.Set["LEADER_ELECTION"] != "true" {
		return 0
	}
	period, err := time.ParseDuration(f.options.Set["LEASE_RETRY_PERIOD"])
	if err != nil {
		period = 2 * time.Second // the default
	}
	return seconds / period.Seconds()
}

// WorkError reports that a forwarder did more work than the bounds allow.
type WorkError struct {
	Seconds float64 // the length of the window
	Changes float64 // changes that arrived through watches in the window
	Rounds  float64 // rounds over all objects that the bounds include
	Lines   []WorkLine
}

// WorkLine compares one kind of work with its bound.
type WorkLine struct {
	Kind        string
	Done, Bound float64
}

func (e *WorkError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "the forwarder works while nothing happens: in %.1f s, with %.0f changes and up to %.0f rounds over all objects\n", e.Seconds, e.Changes, e.Rounds)
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "work\tdone\tbound\t\t")
	for _, l := range e.Lines {
		mark := ""
		if l.Done > l.Bound {
			mark = "too much"
		}
		fmt.Fprintf(w, "%s\t%.4g\t%.4g\t%s\t\n", l.Kind, l.Done, l.Bound, mark)
	}
	_ = w.Flush() // a strings.Builder never fails
	return text.String()
}

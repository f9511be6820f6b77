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

// Work is what a process has done since it began, as its metrics tell.
type Work struct {
	Decisions   float64
	BusReads    float64
	Publishes   float64 // answered by the bus, whatever the answer
	Points      float64 // consistency points, on Kafka one message for each partition
	APIRequests float64 // each try counted, watches included
	CPU         float64 // seconds

	Changes float64 // that watches have shown
	Objects float64 // in the indexers now

	at      time.Time
	up      time.Duration // of the process
	leads   bool          // the process writes to the bus
	missing []string      // metrics that the process should export and does not
}

// The metrics that a [Work] is made of. Those of the bus have its name in them.
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
	leaderMetric    = "kuberelay_leader" // only with an election
)

// Work reads the metrics. A metric that the process does not export counts as 0. That is
// right for those of a leader in a forwarder that stands by; Rest fails upon any other.
func (f *Forwarder) Work(ctx context.Context) (Work, error) {
	at := time.Now()
	all, err := f.scrape(ctx)
	if err != nil {
		return Work{}, err
	}
	bus := cmp.Or(f.options.Set["SINK"], "nats")
	reads, publishes := fmt.Sprintf(readsMetric, bus), fmt.Sprintf(publishesMetric, bus)
	values := map[string]float64{}
	for _, name := range []string{
		decisionsMetric, reads, publishes, pointsMetric, requestsMetric, cpuMetric, startMetric, changesMetric, objectsMetric, leaderMetric,
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
		Changes: values[changesMetric], Objects: values[objectsMetric],
		at: at, up: time.Duration((float64(at.UnixNano())/1e9 - values[startMetric]) * float64(time.Second)),
	}
	needed := []string{requestsMetric, cpuMetric, startMetric}
	leads, elects := values[leaderMetric]
	w.leads = !elects || leads == 1
	if w.leads && bus != "stdout" {
		needed = append(needed, reads, publishes)
	}
	if w.leads && w.Objects > 0 { // each was decided about; without the other two metrics the bounds are stricter
		needed = append(needed, decisionsMetric)
	}
	for _, name := range needed {
		if _, found := values[name]; !found {
			w.missing = append(w.missing, name)
		}
	}
	return w, nil
}

// Rest watches a forwarder that should have nothing to do, for as long as window, and
// fails with a [WorkError] if it does more than the bounds of this file allow. Changes
// of the cluster in the window may cost what a change costs. Rest does not wait for the
// forwarder to become idle: call it when the bus and the cluster agree. It is an error
// if the process restarts meanwhile, or does not export a metric that counts its work.
func (f *Forwarder) Rest(ctx context.Context, window time.Duration) error {
	starts := f.Starts() // process_start_time_seconds moves when the machine's clock is set
	begin, err := f.Work(ctx)
	if err != nil {
		return fmt.Errorf("watch the forwarder at rest: %w", err)
	}
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

// The bounds. Each is an amount that is allowed in any window, and more for what is
// known to cost something. A forwarder at rest measures far below; a loop without a
// pause makes thousands of decisions, or tens of requests, a second.
const (
	// someDecisions is for objects that cannot be published, which are tried again
	// every RETRY_MAX_DELAY, 2 s in tests, and for what was on its way when the window began.
	someDecisions = 20.0
	// decisionsPerChange: a change, what follows its acknowledgement, the delete and the
	// create of a recreated object, and the comparison that a removal asks for.
	decisionsPerChange = 4.0
	// decisionsPerRound: a resync or a refresh enqueues each object once. The comparison
	// after a refresh enqueues only objects that differ, and at rest none does.
	decisionsPerRound = 1.0
	extraCached       = 60.0

	// someReads: the claim is read every 10 s, and a snapshot marker at its beginning
	// and end.
	someReads = 5.0
	// readsPerChange: a conflict or a delete whose last state is on the bus reads one
	// message.
	readsPerChange = 1.0
	// readsPerRefresh: a refresh reads the claim, the checkpoint, what the stream's leader has
	// after it, messages that the checkpoint's reader has missed, and a snapshot marker of each
	// resource, of which tests that refresh often have at most six. On Kafka that takes a few
	// requests for each partition of each topic.
	readsPerRefresh      = 10.0
	kafkaReadsPerRefresh = 60.0

	// somePublishes is for what is tried again, as above.
	somePublishes = 10.0
	// publishesPerChange: a deleted and a created, or a delete and its tombstone.
	publishesPerChange = 2.0
	// maxPartitions is how many messages a consistency point takes.
	maxPartitions = 12.0

	// someRequests: discovery asks up to three questions, five times in the seven seconds
	// after a definition has changed, and each watch may be opened again.
	someRequests = 20.0
	// requestsPerSecond: discovery where the definitions may not be watched asks three
	// questions every 2 s; resources that may not be read are tried again.
	requestsPerSecond = 4.0
	// requestsPerRetryPeriod: a forwarder that stands by reads the lease every quarter of
	// LEASE_RETRY_PERIOD at most, which jitter makes longer; a leader renews it once.
	requestsPerRetryPeriod = 4.0
	// requestsPerChange: a change of a definition or of a namespace asks what may be read.
	requestsPerChange = 2.0

	// The CPU of a process does not depend on what else the machine does. An idle
	// forwarder takes less than 0.01 of a core; reading its metrics takes some
	// milliseconds, a collection of garbage more.
	someCPU      = 0.3 // seconds
	cpuPerSecond = 0.05
	cpuPerChange = 0.005
	cpuPerObject = 0.001 // of a round
	// raceCost is how much more the race detector takes.
	raceCost = 4.0
)

// check compares what was done between two readings with the bounds.
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
	table := &WorkError{Seconds: seconds, Changes: changes, Rounds: resyncs + refreshes, Lines: []WorkLine{
		{"decisions", since(begin.Decisions, end.Decisions), someDecisions + decisionsPerChange*changes + decisionsPerRound*objects},
		{"bus reads", since(begin.BusReads, end.BusReads), someReads + readsPerChange*changes + reads},
		{"publishes", since(begin.Publishes, end.Publishes), somePublishes + publishesPerChange*changes + maxPartitions*since(begin.Points, end.Points)},
		{"API requests", since(begin.APIRequests, end.APIRequests), someRequests + requestsPerSecond*seconds + requestsPerRetryPeriod*f.retryPeriods(seconds) + requestsPerChange*changes},
		{"CPU seconds", since(begin.CPU, end.CPU), cpu},
	}}
	for _, l := range table.Lines {
		if l.Done > l.Bound {
			return table
		}
	}
	return nil
}

// cached is the largest number of objects that the informers hold, given the number of
// selected ones, which is what the metric counts. A filter, namespaces or references leave
// objects out that are decided upon all the same. Tests leave out at most as many as they
// select, and extraCached more.
func (f *Forwarder) cached(selected float64) float64 {
	for _, setting := range []string{"FILTER", "NAMESPACES", "EXCLUDE_NAMESPACES", "NAMESPACE_SELECTOR", "FOLLOW"} {
		if f.options.Set[setting] != "" {
			return 2*selected + extraCached
		}
	}
	return selected
}

// since is how much a counter has grown. One that is less than it was began anew, with a
// term of leadership.
func since(begin, end float64) float64 {
	if end < begin {
		return end
	}
	return end - begin
}

// rounds is how often everything may have been looked at between two readings, by resyncs
// and by refreshes of the checkpoint. A window of n periods has n+1 ticks at most, the
// first of which may be one before it that is still being worked off. With an election, a
// new term looks at everything when it begins, and refreshes after the duration of a lease.
func (f *Forwarder) rounds(begin, end Work) (resyncs, refreshes float64) {
	ticks := func(setting string) float64 {
		period, err := time.ParseDuration(f.options.Set[setting])
		if err != nil {
			period = 10 * time.Minute // the default of both
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

// retryPeriods is how many periods of an election there are in some seconds.
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

// WorkError is that a forwarder did more than it should have.
type WorkError struct {
	Seconds float64 // of the window
	Changes float64 // that watches have shown meanwhile
	Rounds  float64 // of looking at everything that were allowed
	Lines   []WorkLine
}

// WorkLine is one kind of work.
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
	_ = w.Flush() // a strings.Builder takes everything
	return text.String()
}

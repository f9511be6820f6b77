package torture

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuberelay/kuberelay/test/harness"
)

var (
	reportTo  = flag.String("report", "", "write the report of the seeds to this file, for example docs/reliability.md")
	resultsIn = flag.String("results", "", "store the results of the seeds in this file, and skip seeds that it already has; several processes may share the file")
)

// result is the result of a seed.
type result struct {
	Round     string
	Seed      uint64
	Faults    []string
	Felt      map[string]bool // faults with an effect in a log
	Changes   int64           // changes that the API server accepted
	Published int             // messages on the bus
	Foreign   int             // messages from the foreign writer
	Peak      int64           // maximum resident memory of a forwarder with a foreign writer, in bytes
	Starts    int             // starts of forwarders
	Killed    int             // forwarders ended by SIGKILL
	Settled   time.Duration   // from the end of the faults until the checks passed
	Took      time.Duration
	Failed    bool
}

// record collects the result of a world after its seed.
func (w *world) record(p *plan) result {
	of := round{p.settings.sink, p.settings.replicas, p.settings.foreign, p.settings.cluster}
	r := result{Round: of.String(), Seed: p.seed, Faults: p.faults, Felt: map[string]bool{}, Changes: w.user.changes.Load(), Published: w.published, Foreign: w.foreign.count, Peak: w.foreign.peak}
	for _, nd := range w.nodes {
		starts, killed := nd.count()
		r.Starts, r.Killed = r.Starts+starts, r.Killed+killed
		if nd.Ended() == nil {
			continue
		}
		log := nd.Log()
		for _, k := range of.allKinds() {
			if k.felt != "" && slices.Contains(p.faults, k.name) && logged(log, k.felt) > 0 {
				r.Felt[k.name] = true
			}
		}
	}
	return r
}

// loadResults returns the results of a round in the results file, by seed.
func loadResults(on round) (map[uint64]result, error) {
	of := map[uint64]result{}
	file, err := os.Open(*resultsIn)
	switch {
	case *resultsIn == "" || errors.Is(err, fs.ErrNotExist):
		return of, nil
	case err != nil:
		return nil, err
	}
	defer file.Close()
	for lines := json.NewDecoder(file); ; {
		var r result
		switch err := lines.Decode(&r); {
		case errors.Is(err, io.EOF):
			return of, nil
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", *resultsIn, err)
		}
		if r.Round == on.String() {
			of[r.Seed] = r
		}
	}
}

// saveResult appends a result to the results file.
func saveResult(r result) error {
	if *resultsIn == "" {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(*resultsIn, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// row is a kind of fault in the report.
type row struct {
	Name  string
	Seeds int
	Felt  string
}

// runReport is the section of a round in the report.
type runReport struct {
	Title                 string
	Seeds, Failed         int
	Race                  bool
	Faults                []row
	Changes               int64
	Published             int
	Foreign               int
	Peak                  int64 // in MiB
	Starts, Killed        int
	Median, Most, Longest string
}

// report is the input of the template.
type report struct {
	Runs      []string // one section per round
	Scenarios []scenario
	Bugs      int
	Found     string
}

// Planted returns the bugs of a scenario as text.
func (s scenario) Planted() string { return strings.Join(s.bugs, ", ") }

// Name returns the name of a scenario for the template.
func (s scenario) Name() string { return s.name }

func newRun(of round, results []result) runReport {
	r := runReport{Title: of.title(), Seeds: len(results), Race: harness.RaceEnabled}
	var settled []time.Duration
	seeds, felt := map[string]int{}, map[string]int{}
	for _, one := range results {
		if one.Failed {
			r.Failed++
		}
		r.Changes += one.Changes
		r.Published += one.Published
		r.Foreign += one.Foreign
		r.Peak = max(r.Peak, one.Peak>>20)
		r.Starts += one.Starts
		r.Killed += one.Killed
		settled = append(settled, one.Settled)
		for _, name := range one.Faults {
			seeds[name]++
			if one.Felt[name] {
				felt[name]++
			}
		}
	}
	for _, k := range of.allKinds() {
		line := row{Name: k.name, Seeds: seeds[k.name], Felt: "–"}
		if k.felt != "" {
			line.Felt = fmt.Sprint(felt[k.name])
		}
		r.Faults = append(r.Faults, line)
	}
	slices.Sort(settled)
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
	r.Median, r.Most, r.Longest = seconds(settled[len(settled)/2]), seconds(settled[len(settled)*95/100]), seconds(settled[len(settled)-1])
	return r
}

// section returns the marks around a round's section in the report, and the text between them. The
// marks let one round keep the sections of the others.
func (r round) section(text string) (begin, end, between string) {
	begin, end = fmt.Sprintf("<!-- %s -->\n", r), fmt.Sprintf("<!-- end of %s -->\n", r)
	_, after, _ := strings.Cut(text, begin)
	between, _, _ = strings.Cut(after, end)
	return begin, end, between
}

// writeReport writes the section of a round, if it has results, and keeps the other sections.
func writeReport(to string, on round, results []result) error {
	t, err := template.ParseFiles("report.md.tmpl")
	if err != nil {
		return err
	}
	before, err := os.ReadFile(to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	found, err := os.ReadFile("bugs.md")
	if err != nil {
		return err
	}
	bugs := map[string]bool{} // some are planted in several scenarios
	for _, s := range scenarios {
		for _, bug := range s.bugs {
			bugs[bug] = true
		}
	}
	r := report{Scenarios: scenarios, Bugs: len(bugs), Found: string(found)}
	for _, one := range rounds {
		begin, end, section := one.section(string(before))
		if one == on && len(results) > 0 {
			var text strings.Builder
			if err := t.ExecuteTemplate(&text, "run", newRun(on, results)); err != nil {
				return err
			}
			section = text.String()
		}
		r.Runs = append(r.Runs, begin+section+end)
	}
	var text strings.Builder
	if err := t.Execute(&text, r); err != nil {
		return err
	}
	return os.WriteFile(to, []byte(text.String()), 0o644)
}

// TestReportIsCurrent verifies that docs/reliability.md has the text of the template, so that the next run keeps it.
func TestReportIsCurrent(t *testing.T) {
	is, err := os.ReadFile("../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "reliability.md")
	if err := os.WriteFile(to, is, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeReport(to, rounds[0], nil); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(is)); diff != "" {
		t.Errorf("docs/reliability.md differs from report.md.tmpl and bugs.md; change its text there (-want +got):\n%s", diff)
	}
}

// TestReport verifies that the reports of several rounds share one file, and that a later report of a
// round replaces only that round's section.
func TestReport(t *testing.T) {
	to := filepath.Join(t.TempDir(), "reliability.md")
	write := func(on round, changes int64) {
		t.Helper()
		if err := writeReport(to, on, []result{{Seed: 1, Changes: changes, Faults: []string{on.kinds()[0].name}}}); err != nil {
			t.Fatal(err)
		}
	}
	write(round{onNATS, 0, false, 0}, 111)
	write(round{onKafka, 0, false, 0}, 222)
	write(round{onNATS, 0, false, 0}, 333)
	write(round{onKafka, 3, false, 0}, 444)
	write(round{onNATS, 0, true, 0}, 555)
	write(round{onNATS, 0, false, 3}, 666)
	text, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	for want, times := range map[string]int{"accepted 111 ": 0, "accepted 222 ": 1, "accepted 333 ": 1, "accepted 444 ": 1, "accepted 555 ": 1, "accepted 666 ": 1, "## Results on NATS\n": 1, "## Results on Kafka\n": 1, "## Results on Kafka, 3 replicas\n": 1, "## Results on NATS, with a foreign writer\n": 1, "## Results on NATS, a cluster of 3 servers\n": 1} {
		if got := strings.Count(string(text), want); got != times {
			t.Errorf("%q occurs %d times, want %d", want, got, times)
		}
	}
}

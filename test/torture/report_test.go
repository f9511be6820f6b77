package torture

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/kuberelay/kuberelay/test/harness"
)

var reportTo = flag.String("report", "", "write docs/reliability.md, or another file, from what the seeds come to")

// result is what became of a seed.
type result struct {
	seed      uint64
	faults    []string
	felt      map[string]bool // of those that show in a log
	changes   int64           // that the API server accepted
	published int             // messages on the bus
	starts    int             // of forwarders
	killed    int             // of these by kill -9
	settled   time.Duration   // from the end of the faults until verify was content
	took      time.Duration
	failed    bool
}

// record looks at a world after its seed is over.
func (w *world) record(p *plan) result {
	r := result{seed: p.seed, faults: p.faults, felt: map[string]bool{}, changes: w.user.changes.Load(), published: w.published}
	for _, nd := range w.nodes {
		starts, killed := nd.count()
		r.starts, r.killed = r.starts+starts, r.killed+killed
		if nd.Ended() == nil {
			continue
		}
		log := nd.Log()
		for _, k := range (round{p.settings.sink, p.settings.replicas}).kinds() {
			if k.felt != "" && slices.Contains(p.faults, k.name) && logged(log, k.felt) > 0 {
				r.felt[k.name] = true
			}
		}
	}
	return r
}

// row is one kind of fault in the report.
type row struct {
	Name  string
	Seeds int
	Felt  string
}

// runReport is what a run over one bus came to.
type runReport struct {
	Title                 string
	Seeds, Failed         int
	Race                  bool
	Faults                []row
	Changes               int64
	Published             int
	Starts, Killed        int
	Median, Most, Longest string
}

// report is what the template is filled with.
type report struct {
	Runs      []string // a section for each bus
	Scenarios []scenario
	Bugs      int
	Found     string
}

// Planted joins the bugs of a scenario.
func (s scenario) Planted() string { return strings.Join(s.bugs, ", ") }

// Name is for the template.
func (s scenario) Name() string { return s.name }

func newRun(of round, results []result) runReport {
	r := runReport{Title: of.title(), Seeds: len(results), Race: harness.RaceEnabled}
	var settled []time.Duration
	seeds, felt := map[string]int{}, map[string]int{}
	for _, one := range results {
		if one.failed {
			r.Failed++
		}
		r.Changes += one.changes
		r.Published += one.published
		r.Starts += one.starts
		r.Killed += one.killed
		settled = append(settled, one.settled)
		for _, name := range one.faults {
			seeds[name]++
			if one.felt[name] {
				felt[name]++
			}
		}
	}
	for _, k := range of.kinds() {
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

// section is between these in the report, so that one round leaves what another has
// written.
func (r round) section(text string) (begin, end, between string) {
	begin, end = fmt.Sprintf("<!-- %s -->\n", r), fmt.Sprintf("<!-- end of %s -->\n", r)
	_, after, _ := strings.Cut(text, begin)
	between, _, _ = strings.Cut(after, end)
	return begin, end, between
}

// writeReport writes the report of a run, and leaves those of others.
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
	r := report{Scenarios: scenarios, Found: string(found)}
	for _, s := range scenarios {
		r.Bugs += len(s.bugs)
	}
	for _, one := range rounds {
		begin, end, section := one.section(string(before))
		if one == on {
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

// TestReport writes two reports into one file, the first one again at the end.
func TestReport(t *testing.T) {
	to := filepath.Join(t.TempDir(), "reliability.md")
	write := func(on round, changes int64) {
		t.Helper()
		if err := writeReport(to, on, []result{{seed: 1, changes: changes, faults: []string{on.kinds()[0].name}}}); err != nil {
			t.Fatal(err)
		}
	}
	write(round{onNATS, 0}, 111)
	write(round{onKafka, 0}, 222)
	write(round{onNATS, 0}, 333)
	write(round{onKafka, 3}, 444)
	text, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	for want, times := range map[string]int{"accepted 111 ": 0, "accepted 222 ": 1, "accepted 333 ": 1, "accepted 444 ": 1, "## Over NATS\n": 1, "## Over Kafka\n": 1, "## Over Kafka, 3 replicas\n": 1} {
		if got := strings.Count(string(text), want); got != times {
			t.Errorf("%q is there %d times, want %d", want, got, times)
		}
	}
}

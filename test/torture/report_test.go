package torture

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
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
	published int             // messages on the stream
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
		for _, k := range kinds {
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

// report is what the template is filled with.
type report struct {
	Seeds, Failed         int
	Race                  bool
	Faults                []row
	Changes               int64
	Published             int
	Starts, Killed        int
	Median, Most, Longest string
	Scenarios             []scenario
	Bugs                  int
	Found                 string
}

// Planted joins the bugs of a scenario.
func (s scenario) Planted() string { return strings.Join(s.bugs, ", ") }

// Name is for the template.
func (s scenario) Name() string { return s.name }

func newReport(results []result) (report, error) {
	r := report{Seeds: len(results), Race: harness.RaceEnabled, Scenarios: scenarios}
	var settled, took []time.Duration
	seeds, felt := map[string]int{}, map[string]int{}
	for _, of := range results {
		if of.failed {
			r.Failed++
		}
		r.Changes += of.changes
		r.Published += of.published
		r.Starts += of.starts
		r.Killed += of.killed
		settled, took = append(settled, of.settled), append(took, of.took)
		for _, name := range of.faults {
			seeds[name]++
			if of.felt[name] {
				felt[name]++
			}
		}
	}
	for _, k := range kinds {
		line := row{Name: k.name, Seeds: seeds[k.name], Felt: "–"}
		if k.felt != "" {
			line.Felt = fmt.Sprint(felt[k.name])
		}
		r.Faults = append(r.Faults, line)
	}
	slices.Sort(settled)
	slices.Sort(took)
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
	r.Median, r.Most, r.Longest = seconds(settled[len(settled)/2]), seconds(settled[len(settled)*95/100]), seconds(settled[len(settled)-1])
	for _, s := range scenarios {
		r.Bugs += len(s.bugs)
	}
	found, err := os.ReadFile("bugs.md")
	r.Found = string(found)
	return r, err
}

// write fills report.md.tmpl in.
func (r report) write(to string) error {
	t, err := template.ParseFiles("report.md.tmpl")
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := t.Execute(&text, r); err != nil {
		return err
	}
	return os.WriteFile(to, []byte(text.String()), 0o644)
}

// Package check decides whether a forwarder can work with a configuration, before and after it is
// installed. It reports what is wrong, why, and how to fix it.
//
// [Facts] hold the observations. Each check is a pure function of them, so the same facts always
// have the same results. Package observe collects the facts, and changes nothing.
//
// Every check has a section in docs/troubleshooting.md, whose heading is the id of the check. The ids
// are stable.
package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kuberelay/kuberelay/internal/terminal"
)

// Status is the result of a check.
type Status string

// The results. Warning means that part of the copy might be missing or might become wrong. Failed means that
// the forwarder does not work. Skipped means that the check does not apply, or that a fact that it needs is
// unknown.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Code returns the exit code of a status: 0, 1, or 2.
func (s Status) Code() int {
	switch s {
	case Failed:
		return 2
	case Warning:
		return 1
	}
	return 0
}

// Check decides one question about the facts, such as whether a permission is granted.
type Check struct {
	ID    string // heading of its section in docs/troubleshooting.md
	Group string
	sink  string // "" for every sink
	check func(*Facts) verdict
}

// verdict is the decision of a check.
type verdict struct {
	status       Status
	message, fix string
}

func pass(format string, args ...any) verdict { return verdict{OK, fmt.Sprintf(format, args...), ""} }

func skip(format string, args ...any) verdict {
	return verdict{Skipped, fmt.Sprintf(format, args...), ""}
}

func warn(fix, format string, args ...any) verdict {
	return verdict{Warning, fmt.Sprintf(format, args...), fix}
}

func fail(fix, format string, args ...any) verdict {
	return verdict{Failed, fmt.Sprintf(format, args...), fix}
}

// Result is the result of one check. The JSON field names are stable.
type Result struct {
	ID      string `json:"id"`
	Group   string `json:"group"`
	Status  Status `json:"status"`
	Message string `json:"message"`       // what was found, or why the check was skipped
	Fix     string `json:"fix,omitempty"` // how to fix a warning or a failure
	See     string `json:"see,omitempty"` // URL of the check's section in docs/troubleshooting.md; set if Fix is set
}

// Report contains all results, or the reports of several clusters. The JSON field names are stable.
type Report struct {
	Cluster  string   `json:"cluster,omitempty"` // one of several clusters
	Status   Status   `json:"status"`            // the worst status of all results; skipped results don't count
	Summary  string   `json:"summary"`
	Checks   []Result `json:"checks"`             // empty for several clusters
	Clusters []Report `json:"clusters,omitempty"` // ordered by name
}

// Clusters returns the report of several clusters.
func Clusters(all []Report) Report {
	r := Report{Status: OK, Checks: []Result{}, Clusters: all}
	count := map[Status]int{}
	for _, c := range all {
		if c.Status.Code() > r.Status.Code() {
			r.Status = c.Status
		}
		count[c.Status]++
	}
	r.Summary = fmt.Sprintf("%d %s: %d ok, %d with a warning, %d failed", len(all), plural(len(all), "cluster"), count[OK], count[Warning], count[Failed])
	if len(all) == 0 {
		r.Summary = "the source has no cluster"
	}
	return r
}

const page = "https://github.com/kuberelay/kuberelay/blob/main/docs/troubleshooting.md#"

// All returns all checks. A check follows the checks that can explain its failure.
func All() []Check {
	return slices.Concat(setupChecks(), serverChecks(), selectionChecks(), permissionChecks(), busChecks(), natsChecks(), kafkaChecks(), capacityChecks(), ownerChecks())
}

// Run runs all checks, except those that are only for a sink that is not configured.
func Run(f Facts) Report {
	r := Report{Cluster: f.Cluster, Status: OK, Checks: []Result{}}
	count := map[Status]int{}
	for _, c := range All() {
		if c.sink != "" && c.sink != f.Settings.Event.Sink {
			continue
		}
		v := c.run(&f)
		result := Result{ID: c.ID, Group: c.Group, Status: v.status, Message: terminal.OneLine(v.message), Fix: terminal.OneLine(v.fix)}
		if v.status.Code() > 0 {
			result.See = page + c.ID
		}
		if v.status.Code() > r.Status.Code() {
			r.Status = v.status
		}
		count[v.status]++
		r.Checks = append(r.Checks, result)
	}
	r.Summary = fmt.Sprintf("%d ok, %d %s, %d failed, %d skipped", count[OK], count[Warning], plural(count[Warning], "warning"), count[Failed], count[Skipped])
	return r
}

// run runs the check. If the configuration is wrong, it skips every check except that of the configuration.
func (c Check) run(f *Facts) verdict {
	if f.ConfigErr != nil && c.ID != configuration {
		return skip("the configuration is wrong")
	}
	return c.check(f)
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// names returns the first five names, and the number of the others.
func names(all []string) string {
	const show = 5
	if more := len(all) - show; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:show], ", "), more)
	}
	return strings.Join(all, ", ")
}

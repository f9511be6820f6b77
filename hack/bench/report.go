package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// report is what a run has found: tables, and promises with what was measured of them.
type report struct {
	sections []section
	promises []promise
}

type section struct {
	title string
	table table
	notes []string
}

// promise is one of those of issue 7 («it is done when»).
type promise struct {
	text     string
	measured string
	kept     bool
}

func (r *report) add(s section) { r.sections = append(r.sections, s) }

// atMost adds a promise of an upper bound. Nothing measured is nothing kept.
func (r *report) atMost(text string, measured series, bound float64, format string) {
	r.promises = append(r.promises, promise{text, measured.show(format), len(measured) > 0 && measured.median() <= bound})
}

func (r *report) atLeast(text string, measured series, bound float64, format string) {
	r.promises = append(r.promises, promise{text, measured.show(format), len(measured) > 0 && measured.median() >= bound})
}

func (r *report) between(text string, measured series, low, high float64, format string) {
	m := measured.median()
	r.promises = append(r.promises, promise{text, measured.show(format), len(measured) > 0 && low <= m && m <= high})
}

func (r *report) String() string {
	var b strings.Builder
	for _, s := range r.sections {
		fmt.Fprintf(&b, "## %s\n\n%s\n", s.title, &s.table)
		for _, n := range s.notes {
			fmt.Fprintf(&b, "%s\n\n", n)
		}
	}
	if len(r.promises) == 0 {
		return b.String()
	}
	promised := table{head: []string{"promise", "measured", ""}}
	for _, p := range r.promises {
		verdict := "met"
		if !p.kept {
			verdict = "**NOT MET**"
		}
		promised.add(p.text, p.measured, verdict)
	}
	fmt.Fprintf(&b, "## Promises\n\n%s", &promised)
	return b.String()
}

// conclude shows the report, and is an error if a promise is not kept.
func (s *stage) conclude() error {
	text := fmt.Sprintf("Measured on %d CPUs with %s; median, and in parentheses the smallest and the largest.\n\n%s",
		runtime.NumCPU(), runtime.Version(), &s.report)
	s.say("\n%s", text)
	var err error
	if s.settings.out != "" {
		err = os.WriteFile(s.settings.out, []byte(text), 0o644)
	}
	for _, p := range s.report.promises {
		if !p.kept {
			return errors.Join(err, errNotKept)
		}
	}
	return err
}

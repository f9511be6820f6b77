package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"
)

// series has the measurements of one value.
type series []float64

// percentile returns the p-th percentile by the nearest-rank method, or 0 for an empty series.
func (s series) percentile(p float64) float64 {
	if len(s) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(s))))
	return slices.Sorted(slices.Values(s))[max(rank, 1)-1]
}

// median returns the middle value, or the mean of the two middle values. It returns 0 for an empty
// series.
func (s series) median() float64 {
	if len(s) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(s))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// per returns the ratio of this series to another one for each round.
func (s series) per(other series) (ratios series) {
	for i := range min(len(s), len(other)) {
		if other[i] != 0 {
			ratios = append(ratios, s[i]/other[i])
		}
	}
	return ratios
}

// show formats the median. If the series has several values, the smallest and the largest value follow.
func (s series) show(format string) string {
	if len(s) == 0 {
		return "–"
	}
	text := fmt.Sprintf(format, s.median())
	if len(s) == 1 {
		return text
	}
	return fmt.Sprintf("%s (%s–%s)", text, fmt.Sprintf(format, slices.Min(s)), fmt.Sprintf(format, slices.Max(s)))
}

// report has the tables and promises of a run.
type report struct {
	sections []*section
	promises table
	broken   int // number of promises that are not met
}

// section is an aligned Markdown table with a title and notes.
type section struct {
	title string
	table
	notes []string
}

type table [][]string // the first row is the head

func (t *table) add(cells ...string) { *t = append(*t, cells) }

func (t table) String() string {
	widths := make([]int, len(t[0]))
	for _, row := range t {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for i, row := range t {
		for column, cell := range row {
			fmt.Fprintf(&b, "| %-*s ", widths[column], cell)
		}
		b.WriteString("|\n")
		for column := 0; i == 0 && column < len(widths); column++ {
			b.WriteString("|" + strings.Repeat("-", widths[column]+2))
		}
		if i == 0 {
			b.WriteString("|\n")
		}
	}
	return b.String()
}

// add adds a section whose table has the given header.
func (r *report) add(title string, head ...string) *section {
	s := &section{title: title, table: table{head}}
	r.sections = append(r.sections, s)
	return s
}

// latencies adds a row with latencies to a table whose header is latencyHead.
func (s *section) latencies(name string, l series) {
	s.add(name, fmt.Sprint(len(l)), fmt.Sprintf("%.1f", l.percentile(50)), fmt.Sprintf("%.1f", l.percentile(99)), fmt.Sprintf("%.1f", l.percentile(100)))
}

var latencyHead = []string{"from the API server's answer", "changes", "p50, ms", "p99, ms", "worst, ms"}

// promise adds a promise that the median of the measurements is between low and high. Without a
// measurement, the promise isn't met.
func (r *report) promise(text string, measured series, low, high float64, format string) {
	if r.promises == nil {
		r.promises.add("promise", "measured", "")
	}
	verdict := "met"
	if m := measured.median(); len(measured) == 0 || !(low <= m && m <= high) { // NaN fails every comparison
		verdict = "**NOT MET**"
		r.broken++
	}
	r.promises.add(text, measured.show(format), verdict)
}

func (r *report) atMost(text string, measured series, bound float64, format string) {
	r.promise(text, measured, math.Inf(-1), bound, format)
}

// p99AtMost adds a promise about a 99th percentile in milliseconds.
func (r *report) p99AtMost(text string, l series, bound float64) {
	var measured series
	if len(l) > 0 {
		measured = series{l.percentile(99)}
	}
	r.atMost(fmt.Sprintf("%s within %.0f ms (p99 of %d)", text, bound, len(l)), measured, bound, "%.1f ms")
}

func (r *report) String() string {
	var b strings.Builder
	for _, s := range r.sections {
		fmt.Fprintf(&b, "## %s\n\n%s\n", s.title, s.table)
		for _, n := range s.notes {
			fmt.Fprintf(&b, "%s\n\n", n)
		}
	}
	if r.promises != nil {
		fmt.Fprintf(&b, "## Promises\n\n%s", r.promises)
	}
	return b.String()
}

// conclude writes the report to out and to the file, if any. It returns an error if a promise isn't met.
func (r *report) conclude(out io.Writer, file string) (err error) {
	text := fmt.Sprintf("Measured on %d CPUs with %s; median, and in parentheses the smallest and the largest.\n\n%s", runtime.NumCPU(), runtime.Version(), r)
	fmt.Fprintf(out, "\n%s\n", text)
	if file != "" {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	if r.broken > 0 {
		err = errors.Join(err, fmt.Errorf("%d promises are not met", r.broken))
	}
	return err
}

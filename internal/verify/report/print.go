package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kuberelay/kuberelay/internal/terminal"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// WriteTable prints a report for people: a line for each problem, and a summary. It escapes
// characters that could control the terminal.
func (r Report) WriteTable(w io.Writer) error {
	var b bytes.Buffer
	if len(r.Problems) > 0 {
		table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "PROBLEM\tRESOURCE\tOBJECT\tCLUSTER\tBUS\tPOSITION\tDETAIL")
		for _, p := range r.Problems {
			fmt.Fprintln(table, strings.Join([]string{
				string(p.Kind), cell(p.Resource), p.object(), cell(p.Cluster), cell(p.Bus), p.place(), visible(p.Detail) + p.when(),
			}, "\t"))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		b.WriteByte('\n')
	}
	if r.isUnknown() {
		other := "KUBERELAY_NATS_SUBJECT_PREFIX"
		if len(r.Partitions) > 0 {
			other = "KUBERELAY_KAFKA_TOPIC"
		}
		fmt.Fprintf(&b, "the bus has no events of cluster %s: check KUBERELAY_CLUSTER_NAME (and %s)\n", strconv.Quote(r.Cluster), other)
	}
	for _, u := range r.Unlisted {
		fmt.Fprintf(&b, "not read: %s\n", visible(u.Reason))
	}
	for _, s := range r.Unmatched {
		fmt.Fprintf(&b, "matches nothing in the cluster: %s\n", cell(s))
	}
	if r.OutOfScope > 0 {
		fmt.Fprintf(&b, "%s on the bus out of scope, not compared\n", count(r.OutOfScope, "object"))
	}
	if r.InMotion > 0 {
		fmt.Fprintf(&b, "%s changed constantly: the bus follows the versions, the data was not compared\n", count(r.InMotion, "object"))
	}
	if r.OtherVersion > 0 {
		fmt.Fprintf(&b, "%s on the bus in an API version that the cluster no longer serves: uid and version compared, data not compared\n", count(r.OtherVersion, "object"))
	}
	r.writePoints(&b)
	if len(r.Settings) > 0 {
		verb := "differ"
		if len(r.Settings) == 1 {
			verb = "differs"
		}
		fmt.Fprintf(&b, "%s %s from the forwarder's: run verify with the environment of the forwarder\n", strings.Join(r.Settings, ", "), verb)
	}
	if n := r.countOf(Foreign); n > 0 {
		fmt.Fprintf(&b, "%s of another writer, after which the forwarder published the state again\n", count(n, "message"))
	}
	fmt.Fprintln(&b, r.Summary())
	_, err := w.Write(b.Bytes())
	return err
}

// writePoints prints how each resource was compared: at a consistency point, or by settling.
func (r Report) writePoints(b *bytes.Buffer) {
	var at, reasons []string
	settled := map[string][]string{} // resources by the reason for settling
	for _, x := range r.Resources {
		switch {
		case x.Point != nil:
			at = append(at, fmt.Sprintf("%s (%s, %s old)", cell(x.Resource), thousands(x.Point.ResourceVersion), age(x.Point.Age)))
		case x.NoPoint != "":
			if settled[x.NoPoint] == nil {
				reasons = append(reasons, x.NoPoint)
			}
			settled[x.NoPoint] = append(settled[x.NoPoint], cell(x.Resource))
		}
	}
	if len(at) > 0 {
		fmt.Fprintf(b, "compared at a consistency point: %s\n", strings.Join(at, ", "))
	}
	for _, reason := range reasons {
		fmt.Fprintf(b, "compared by settling: %s: %s\n", strings.Join(settled[reason], ", "), visible(reason))
	}
}

func age(seconds float64) string { return (time.Duration(seconds) * time.Second).String() }

// Summary returns the report in one line.
func (r Report) Summary() string {
	verdict := "not clean"
	switch {
	case r.Clean():
		verdict = "clean"
	case len(r.Problems) == 0:
		verdict = "not everything was read"
	}
	at := ""
	if r.ResourceVersion != "" {
		at = ", cluster at " + thousands(r.ResourceVersion)
	}
	end := "stream up to " + thousands(strconv.FormatUint(r.Position, 10))
	if len(r.Partitions) > 0 {
		end = count(len(r.Partitions), "partition") + " read to the end"
	}
	return fmt.Sprintf("%s: %s of state in %s, %s of order or form in %s; %s%s", verdict,
		count(r.differences(), "difference"), count(r.Objects, "object"),
		count(r.broken(), "problem"), count(r.Messages, "message"), end, at)
}

// WriteJSON prints a report as one JSON document.
func (r Report) WriteJSON(w io.Writer) error { return terminal.WriteJSON(w, r) }

// object returns the namespace and name for people.
func (p Problem) object() string {
	name := p.Name
	if p.Namespace != "" {
		name = p.Namespace + "/" + p.Name
	}
	return cell(name)
}

// cell returns one word of the table. It quotes s unless s is a plain word.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	if !IsPlain(s) {
		return strconv.Quote(s)
	}
	return s
}

// IsPlain reports whether s is printed without quotes. This requires that all its characters are
// printable, and that it has neither a space nor a quote.
func IsPlain(s string) bool {
	return s != "" && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) || r == '"' })
}

// visible escapes the unprintable characters of a sentence. Spaces stay.
func visible(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) && utf8.ValidString(s) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// place returns the position of the message, or its partition and offset.
func (p Problem) place() string {
	switch {
	case p.Partition != nil:
		return fmt.Sprintf("%d:%d", *p.Partition, p.Position)
	case p.Position == 0:
		return "-"
	}
	return strconv.FormatUint(p.Position, 10)
}

// when describes the consistency point at which the difference was found.
func (p Problem) when() string {
	if p.Point == "" {
		return ""
	}
	return fmt.Sprintf(" (at the consistency point %s)", cell(p.Point))
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return thousands(strconv.Itoa(n)) + " " + noun
}

// thousands groups the digits of a number with commas. Other text stays unchanged, or is quoted as
// in cell.
func thousands(s string) string {
	if !wire.IsNumber(s) {
		return cell(s)
	}
	first := cmp.Or(len(s)%3, 3)
	grouped := s[:min(first, len(s))]
	for i := first; i < len(s); i += 3 {
		grouped += "," + s[i:i+3]
	}
	return grouped
}

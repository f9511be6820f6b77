package status

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kuberelay/kuberelay/internal/terminal"
)

// Printers returns the printers of a judged document by name: table for people, json, nagios for
// plugins of Nagios and compatible systems, and prometheus for a textfile collector.
func Printers() map[string]func(io.Writer, Document) error {
	return map[string]func(io.Writer, Document) error{"table": writeTable, "json": terminal.WriteJSON[Document], "nagios": writeNagios, "prometheus": writePrometheus}
}

func writeTable(w io.Writer, d Document) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: %s\n", strings.ToUpper(string(d.Verdict.Level)), d.Verdict.Summary)
	for i, f := range d.Verdict.Findings {
		if f.isNotice() {
			break // notices are last, and are printed below
		}
		if i > 0 { // the summary line has the message of the first finding
			fmt.Fprintf(&b, "\n%s: %s\n", f.Level, f.Message)
		}
		fmt.Fprintf(&b, "  fix: %s\n  see: %s\n", f.Fix, f.See)
	}
	if len(d.Resources) > 0 {
		b.WriteByte('\n')
		d.writeResources(&b)
	}
	if d.Clusters != nil {
		b.WriteByte('\n')
		d.writeClusters(&b)
		fmt.Fprintf(&b, "\nversion: %s; --cluster shows one cluster\n", cmp.Or(d.Version, "-"))
		return write(w, &b)
	}
	if d.Bus.Sink == "" { // no response
		return write(w, &b)
	}
	b.WriteByte('\n')
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "bus:\t%s, %s%s", d.Bus.Sink, d.Bus.State, d.since(d.Bus.Since))
	if d.knowsUnsent() {
		fmt.Fprintf(t, ", %d queued, %d in flight", d.Bus.Queued, d.Bus.InFlight)
	}
	if n := d.Bus.ForeignEvents; n > 0 {
		fmt.Fprintf(t, ", %s repaired", counted(n, "foreign event"))
	}
	fmt.Fprintln(t)
	if d.Lease != nil {
		fmt.Fprintf(t, "lease:\t%s\n", d.Lease)
	}
	for _, w := range d.Work {
		fmt.Fprintf(t, "work:\t%s\n", w)
	}
	fmt.Fprintf(t, "memory:\t%s\n", d.Memory)
	fmt.Fprintf(t, "cluster:\t%s\n", cmp.Or(d.Cluster, "-"))
	fmt.Fprintf(t, "instance:\t%s\n", cmp.Or(d.Instance, "-"))
	fmt.Fprintf(t, "version:\t%s\n", cmp.Or(d.Version, "-"))
	for _, f := range d.Verdict.Findings {
		if f.isNotice() {
			fmt.Fprintf(t, "notice:\t%s; fix: %s\n", f.Message, f.Fix)
		}
	}
	_ = t.Flush() // a Buffer never fails
	return write(w, &b)
}

// write writes text that can contain errors of other programs. It escapes control characters.
func write(w io.Writer, b *bytes.Buffer) error {
	_, err := w.Write(terminal.Escape(b.Bytes()))
	return err
}

func (d Document) writeResources(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush() //nolint:errcheck // a Buffer never fails
	fmt.Fprintln(t, "RESOURCE\tSTATE\tOBJECTS\tDIRTY\tCONSISTENT\tPUBLISHED\tERROR")
	for _, r := range d.Resources {
		state, objects, dirty, failure := r.State, fmt.Sprint(r.Objects), "-", r.WatchError
		if r.Reason != "" {
			state += " (" + r.Reason + ")"
		}
		if r.Objects == 0 && r.State != "synced" {
			objects = "-" // nothing was listed yet
		}
		if r.Dirty != nil {
			dirty = fmt.Sprint(*r.Dirty)
		}
		if failure == nil {
			failure = r.PublishError
		}
		text := "-"
		if failure != nil {
			text = fmt.Sprintf("for %s: %s", d.age(&failure.Since), terminal.OneLine(failure.Message))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, state, objects, dirty, d.ago(r.ConsistentAsOf), d.ago(r.LastPublished), text)
	}
}

func (d Document) ago(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return d.age(t) + " ago"
}

// String describes the lease in a few words.
func (l *Lease) String() string {
	switch {
	case l.Error != "":
		return l.Name + ", access denied"
	case l.Leading:
		return l.Name + ", leading"
	case l.Holder == "":
		return l.Name + ", nobody leads"
	}
	return l.Name + ", standing by, the leader is " + l.Holder
}

// String describes the work in a few words.
func (w Work) String() string {
	text := fmt.Sprintf("%s: %d", strings.ReplaceAll(w.Work, "_", " "), w.Done)
	if w.Total != nil {
		text += fmt.Sprintf(" of %d", *w.Total)
	}
	text += " " + w.Unit
	if w.Growing {
		text += " so far"
	}
	if w.PerSecond > 0 {
		text += fmt.Sprintf(", %.0f/s", w.PerSecond)
	}
	if w.SecondsLeft != nil {
		text += fmt.Sprintf(", %s left", age(time.Duration(*w.SecondsLeft)*time.Second))
	}
	return text
}

// String describes the memory in a few words.
func (m Memory) String() string {
	if m.Limit == 0 {
		return size(m.Used) + ", no limit"
	}
	return fmt.Sprintf("%s of %s (%d%%)", size(m.Used), size(m.Limit), 100*m.Used/m.Limit)
}

// writeNagios writes one line with performance data, as the guidelines for plugins require
// (https://nagios-plugins.org/doc/guidelines.html#PLUGOUTPUT).
func writeNagios(w io.Writer, d Document) error {
	line := fmt.Sprintf("KUBERELAY %s - %s", strings.ToUpper(string(d.Verdict.Level)), strings.ReplaceAll(d.Verdict.Summary, "|", "/"))
	var data []string
	if d.Bus.Sink != "" && d.Clusters == nil {
		data = append(data, fmt.Sprintf("resources=%d", len(d.Resources)), fmt.Sprintf("objects=%d", d.objects()))
		if d.knowsUnsent() {
			data = append(data, fmt.Sprintf("dirty=%d", d.dirty()))
			data = append(data, fmt.Sprintf("unsent=%ds;%d;%d", d.seconds(d.OldestUnsent), int(toleratedUnsent.Seconds()), int(maxUnsent.Seconds())))
		}
		if oldest := d.consistentAsOf(); oldest != nil {
			data = append(data, fmt.Sprintf("consistent=%ds;%d", d.seconds(oldest), int(maxConsistencyAge.Seconds())))
		}
		memory := fmt.Sprintf("memory=%dB", d.Memory.Used)
		if limit := d.Memory.Limit; limit > 0 {
			memory += fmt.Sprintf(";%d;;0;%d", int64(maxMemoryShare*float64(limit)), limit)
		}
		line += " | " + strings.Join(append(data, memory), " ")
	}
	return write(w, bytes.NewBufferString(line+"\n"))
}

// knowsUnsent reports whether the forwarder knows which changes the bus has not acknowledged. A standby
// doesn't know.
func (d Document) knowsUnsent() bool { return d.Bus.State != BusUnused }

// seconds returns the age of a time, or 0 for nil.
func (d Document) seconds(t *time.Time) int {
	if t == nil {
		return 0
	}
	return int(d.Time.Sub(*t).Seconds())
}

func age(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

func size(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

package check

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/kuberelay/kuberelay/internal/terminal"
)

// Printers returns the printers of a report by name: table for people, and json.
func Printers() map[string]func(io.Writer, Report) error {
	return map[string]func(io.Writer, Report) error{"table": writeTable, "json": terminal.WriteJSON[Report]}
}

func writeTable(w io.Writer, r Report) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: %s\n", strings.ToUpper(string(r.Status)), r.Summary)
	for _, c := range r.Clusters {
		fmt.Fprintf(&b, "\ncluster %s: %s: %s\n", c.Cluster, strings.ToUpper(string(c.Status)), c.Summary)
		c.writeChecks(&b)
	}
	r.writeChecks(&b)
	_, err := w.Write(terminal.Escape(b.Bytes()))
	return err
}

// writeChecks writes the results by group.
func (r Report) writeChecks(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	group := ""
	for _, c := range r.Checks {
		if c.Group != group {
			group = c.Group
			fmt.Fprintf(t, "\n%s\n", group)
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", c.Status, c.ID, c.Message)
		if c.Fix != "" {
			fmt.Fprintf(t, "  \t\tfix: %s\n  \t\tsee: %s\n", c.Fix, c.See)
		}
	}
	_ = t.Flush() // a Buffer never fails
}

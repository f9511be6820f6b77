package explain

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/kuberelay/kuberelay/internal/terminal"
)

// someNames is the maximum number of names to print from a long list.
const someNames = 10

// WriteTable prints a line for each resource, and then notes about all of them.
func (x Explanation) WriteTable(w io.Writer) error {
	var b bytes.Buffer
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if len(x.Resources) > 0 {
		fmt.Fprintln(table, "RESOURCE\tVERSION\tKIND\tNAMESPACED\tSELECTOR\tWATCHED\tSCOPE\tWHY")
	}
	counts := map[Watched]int{}
	var covers []string
	for _, r := range x.Resources {
		counts[r.Watched]++
		if r.ScopeDetail != "" && !slices.Contains(covers, r.ScopeDetail) {
			covers = append(covers, r.ScopeDetail)
		}
		why := r.Detail
		if r.GroupError != "" {
			why = strings.TrimPrefix(why+"; discovery of its group fails", "; ")
		}
		cells := []string{r.Name, r.Version, r.Kind, strconv.FormatBool(r.Namespaced), r.Selector, string(r.Watched), scope(r), why}
		for i, cell := range cells {
			cells[i] = terminal.Line(cmp.Or(cell, "-"))
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(x.Resources) > 0 {
		fmt.Fprintln(&b)
	}
	for _, detail := range covers {
		fmt.Fprintf(&b, "namespaced resources: %s\n", detail)
	}
	writeNotes(&b, x)
	for _, selectors := range []struct {
		what string
		list []string
	}{
		{"selectors that match nothing yet", x.Unmatched},
		{"exclusions that match nothing now", x.UnmatchedExclude},
	} {
		if len(selectors.list) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", selectors.what, terminal.Line(strings.Join(selectors.list, ", ")))
		}
	}
	fmt.Fprintf(&b, "%d watched, %d of them only partly; %d not watched\n",
		counts[Everywhere]+counts[Partly], counts[Partly], counts[Nowhere])
	_, err := w.Write(b.Bytes())
	return err
}

// WriteAnswers prints everything about the requested resources.
func (x Explanation) WriteAnswers(w io.Writer) error {
	var b bytes.Buffer
	for _, r := range x.Resources {
		namespaced := "cluster-scoped"
		if r.Namespaced {
			namespaced = "namespaced"
		}
		table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		line := func(name, value string) {
			if value != "" {
				fmt.Fprintf(table, "%s:\t%s\n", name, terminal.Line(value))
			}
		}
		line("Resource", r.Name)
		line("Kind", r.Kind+", "+namespaced)
		line("Version", r.Version+", served in "+strings.Join(r.Versions, ", "))
		line("Watched", string(r.Watched))
		line("Why", r.Detail)
		line("List", r.ListError)
		line("Selector", r.Selector)
		if len(r.Selectors) > 1 {
			line("Selectors", strings.Join(r.Selectors, ", ")+"; the first one that selects it decides")
		}
		line("Excluded by", r.ExcludedBy)
		line("Scope", scope(r))
		line("Namespaces", some(r.Namespaces))
		line("Watches", r.ScopeDetail)
		for _, f := range r.Forbidden {
			line("Forbidden", refusal(f))
		}
		line("Discovery", r.GroupError)
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(&b)
	}
	for _, n := range x.NotServed {
		fmt.Fprintf(&b, "%s: %s\n", terminal.Line(n.Asked), terminal.Line(n.Detail))
	}
	writeNotes(&b, x)
	_, err := w.Write(b.Bytes())
	return err
}

func writeNotes(b *bytes.Buffer, x Explanation) {
	note := func(format, value string) {
		if value != "" {
			fmt.Fprintf(b, format+"\n", terminal.Line(value))
		}
	}
	switch n := x.Namespaces; {
	case n.All:
	case n.Error != "":
		note("namespaces: the selection is unknown: %s", n.Error)
	default:
		note("namespaces: %s", strings.TrimSuffix(fmt.Sprintf("%d selected: %s", len(n.Selected), some(n.Selected)), ": "))
		note("named namespaces that do not exist: %s", some(n.NotFound))
	}
	note("also watched: objects that the selected ones refer to in %s", strings.Join(x.Follow, ", "))
	note("only objects whose labels match: %s", x.LabelSelector)
	note("only objects whose fields match: %s", x.FieldSelector)
	note("only objects for which this is true: %s", strings.Join(strings.Fields(x.Filter), " "))
	note("without their fields: %s", strings.Join(x.DropFields, ", "))
	note("with hashes in place of: %s", strings.Join(x.HashFields, ", "))
	note("warning: fields that are known to hold secrets are published: %s", strings.Join(x.ReadableFields, ", "))
	for _, g := range x.FailingGroups {
		note("API group whose discovery fails, which might have more resources: %s", cmp.Or(g.Group, "core")+": "+g.Error)
	}
	for _, warning := range x.Warnings {
		note("warning: %s", warning)
	}
}

// scope returns the scope of the watches of a resource.
func scope(r Explained) string {
	switch {
	case r.Scope == ClusterScope:
		return "cluster"
	case r.Scope == AllNamespacesScope:
		return "all namespaces"
	case r.Scope == NamespacesScope && len(r.Namespaces) == 0:
		return "no namespace"
	case r.Scope == NamespacesScope && len(r.Namespaces) == 1:
		return "1 namespace"
	case r.Scope == NamespacesScope:
		return fmt.Sprintf("%d namespaces", len(r.Namespaces))
	}
	return ""
}

func refusal(f Refusal) string {
	text := strings.Join(f.Verbs, ", ")
	if f.Namespace != "" {
		text += " in the namespace " + f.Namespace
	}
	if f.Reason != "" {
		text += ": " + f.Reason
	}
	return text
}

// some returns the first names of a list, and the number of the others.
func some(names []string) string {
	more := ""
	if n := len(names) - someNames; n > 0 {
		names, more = names[:someNames], fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ") + more
}

// WriteJSON prints an explanation as one JSON document.
func (x Explanation) WriteJSON(w io.Writer) error { return terminal.WriteJSON(w, x) }

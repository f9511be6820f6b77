package trace

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kuberelay/kuberelay/internal/terminal"
)

// Printers returns the printers of a judged document by name: table for people, and json.
func Printers() map[string]func(io.Writer, Document) error {
	return map[string]func(io.Writer, Document) error{"table": writeTable, "json": terminal.WriteJSON[Document]}
}

func writeTable(w io.Writer, d Document) error {
	var b bytes.Buffer
	fmt.Fprintln(&b, d.Verdict.Summary)
	if d.Verdict.Fix != "" {
		fmt.Fprintf(&b, "  fix: %s\n", d.Verdict.Fix)
	}
	b.WriteByte('\n')
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(name string, parts ...string) {
		parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
		fmt.Fprintf(t, "%s:\t%s\n", name, terminal.OneLine(strings.Join(parts, ", ")))
	}
	line("object", d.Object.String(), named("cluster", d.Cluster))
	line("selection", d.Selection.words()...)
	line("API server", stateWords(d.APIServer.State, d.APIServer.UID, d.APIServer.Version, d.APIServer.Error)...)
	f := d.Forwarder
	line("forwarder", string(f.Role), named("at", f.Address), f.Error)
	if wt := f.Watch; wt != nil {
		line("watch", append([]string{wt.State, wt.Reason, d.failure(wt.Error)}, stateWords(wt.Object, wt.UID, wt.Version, "")...)...)
	}
	if f.Role == Leading {
		line("queue", d.queueWords()...)
	}
	line("bus", d.busWords()...)
	if d.Consumer != nil {
		line("consumer", d.Consumer.words()...)
	}
	_ = t.Flush() // a Buffer never fails
	_, err := w.Write(terminal.Escape(b.Bytes()))
	return err
}

func named(name, value string) string {
	if value == "" {
		return ""
	}
	return name + " " + value
}

func stateWords(s State, uid, version, err string) []string {
	if s == Exists {
		return []string{named("version", version), named("uid", uid)}
	}
	return []string{string(s), err}
}

func (s Selection) words() []string {
	return []string{
		map[Selected]string{IsSelected: "selected", NotSelected: "not selected", IsForbidden: "forbidden"}[s.Selected],
		named("by", s.Selector), s.Detail, named("filter", s.Filter), map[string]string{FromForwarder: "according to the forwarder", FromEnvironment: "according to this environment"}[s.From],
	}
}

func (d Document) failure(e *Error) string {
	if e == nil {
		return ""
	}
	return "fails" + d.lasting(e.Since) + ": " + e.Message
}

func (d Document) queueWords() []string {
	f := d.Forwarder
	text := "nothing waits"
	if f.Unsent != nil {
		text = "a change waits for " + d.age(f.Unsent)
	}
	words := []string{text, strings.ReplaceAll(f.Queue, "_", " ")}
	if f.Attempts > 0 {
		words = append(words, fmt.Sprintf("%d failed attempts", f.Attempts))
	}
	if f.Unpublishable {
		words = append(words, "unpublishable")
	}
	words = append(words, named("decision", f.Decision))
	if e := f.PublishError; e != nil {
		of := "last error"
		if e.OtherObject {
			of += " of another object"
		}
		words = append(words, of+d.lasting(e.Since)+": "+e.Message)
	}
	if f.BusUnavailable != nil {
		words = append(words, "bus unavailable"+d.lasting(f.BusUnavailable.Since)+": "+f.BusUnavailable.Message)
	}
	return words
}

func (d Document) busWords() []string {
	b := d.Bus
	switch b.State {
	case Unknown:
		words := []string{"unknown", b.Error}
		if c := d.Forwarder.Checkpoint; c != nil {
			words = append(words, "the forwarder knows of "+terminal.OneLine(string(c.State)+" "+named("version", c.Version)+" "+named("at", c.Position)))
		}
		return words
	case Absent:
		return []string{"nothing", named("in", b.Source)}
	}
	words := []string{b.Type, named("version", b.Version), named("in", b.Source) + " at " + b.Position}
	if b.Stored != nil {
		stored := "stored " + d.age(b.Stored) + " ago"
		if b.Time != nil {
			stored += fmt.Sprintf(", %d ms after the forwarder saw it", max(0, b.Stored.Sub(*b.Time).Milliseconds()))
		}
		words = append(words, stored)
	}
	if b.Truncated {
		words = append(words, "metadata only")
	}
	return words
}

func (c Consumer) words() []string {
	if c.Error != "" {
		return []string{c.Name, "unknown", c.Error}
	}
	words := []string{c.Name, fmt.Sprintf("acknowledged up to %d, and the event is at %d", c.Acknowledged, c.Event)}
	if c.Delivered != nil {
		words = append(words, fmt.Sprintf("delivered up to %d", *c.Delivered))
	}
	return append(words, fmt.Sprintf("%d messages behind", c.Behind), c.Other)
}

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/config"
)

// addVariables appends the table of variables to the help of some commands.
func addVariables(root *cobra.Command, commands ...*cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		help(cmd, args)
		if slices.Contains(commands, cmd) {
			writeVariables(cmd.OutOrStdout(), config.Fields())
		}
	})
}

const (
	indent = "      "
	width  = 80
)

func writeVariables(w io.Writer, fields []config.Field) {
	group := ""
	for _, f := range fields {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(w, "\n%s:\n", group)
			if f.Note != "" {
				writeWrapped(w, "  ", f.Note)
			}
		}
		fmt.Fprintf(w, "  %s (%s)\n", f.Name, summary(f))
		writeWrapped(w, indent, f.Description)
	}
	fmt.Fprint(w, `
The cluster is the one of $KUBECONFIG or ~/.kube/config, or, in a pod, its own.
An empty variable counts as not set. An unknown variable is an error.
`)
}

// summary returns the type, range and default of a variable in a few words.
func summary(f config.Field) string {
	parts := []string{f.Type}
	if f.Bounds != "" {
		parts = append(parts, f.Bounds)
	}
	switch {
	case f.Required:
		parts = append(parts, "required")
	case f.Default != "":
		parts = append(parts, "default "+f.Default)
	default:
		parts = append(parts, "default: "+f.Unset)
	}
	return strings.Join(parts, ", ")
}

func writeWrapped(w io.Writer, indent, text string) {
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) > width && line != indent {
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			line = indent
		}
		line += word + " "
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

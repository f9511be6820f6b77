package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/config"
)

func newConfigCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check the configuration and print what is in effect",
		Long: `Config checks the environment as 'forwarder run' does, without connecting to
anything, and prints each value and its source. For a file it prints the path,
never the content.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := map[string]func(io.Writer, []config.Value) error{"text": writeText, "json": writeJSON}[output]
			if !ok {
				return &usageError{fmt.Errorf("--output=%q: use text or json", output)}
			}
			cfg, err := loadConfig(config.Forwarding)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), cfg.Effective())
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func writeText(w io.Writer, values []config.Value) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VARIABLE\tVALUE\tSOURCE")
	for _, v := range values {
		value := v.Value
		if value == "" {
			value = "(" + v.Unset + ")"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", v.Name, strings.ReplaceAll(value, "\n", " "), source(v))
	}
	return table.Flush()
}

func writeJSON(w io.Writer, values []config.Value) error {
	type entry struct {
		Name   string `json:"name"`
		Value  string `json:"value"`
		Source string `json:"source"`
	}
	var entries []entry
	for _, v := range values {
		entries = append(entries, entry{v.Name, v.Value, source(v)})
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(entries)
}

func source(v config.Value) string {
	if v.Set {
		return "environment"
	}
	return "default"
}

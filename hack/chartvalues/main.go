// Chartvalues writes the generated files of charts/kuberelay into the directory that its argument names. The
// files are values.yaml, values.schema.json, README.md and templates/_variables.tpl. The values in the
// section config come from package config, and the other values from values.go and the files that it
// refers to. The text of the README is in README.md.tmpl.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kuberelay/kuberelay/internal/config"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chartvalues:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: chartvalues DIRECTORY")
	}
	fields := config.Fields()
	chart := values(configuration(fields))
	for name, write := range map[string]func(*bytes.Buffer) error{
		"values.yaml":              func(b *bytes.Buffer) error { return writeYAML(b, chart) },
		"values.schema.json":       func(b *bytes.Buffer) error { return writeSchema(b, chart) },
		"README.md":                func(b *bytes.Buffer) error { return writePage(b, chart) },
		"templates/_variables.tpl": func(b *bytes.Buffer) error { return writeVariables(b, fields) },
	} {
		var content bytes.Buffer
		if err := write(&content); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		file := filepath.Join(args[0], name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, content.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

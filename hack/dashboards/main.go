// Dashboards writes the Grafana dashboards of the chart, overview.json and forwarder.json, into the directory
// that its argument names. The panels are in overview.go and forwarder.go. grafana.go has the JSON model.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: dashboards DIRECTORY")
	}
	for name, of := range map[string]dashboard{"overview": overview(), "forwarder": forwarder()} {
		var content bytes.Buffer
		e := json.NewEncoder(&content)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(of); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(args[0], name+".json"), content.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

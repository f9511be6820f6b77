// Schemas writes the JSON Schemas of events and their data, and the AsyncAPI document, into the directory
// that its argument names. The directory in the repository is docs/schemas. This command is the only place
// that declares the schemas of event types and attributes.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: schemas DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func write(directory string) error {
	for _, file := range []struct {
		name     string
		document object
		encode   func(object) ([]byte, error)
	}{
		{"object.v1.json", objectDocument(), asJSON},
		{"change.v1.json", changeDocument(), asJSON},
		{"event.v1.json", eventDocument(), asJSON},
		{"asyncapi.yaml", asyncAPI(), asYAML},
	} {
		text, err := file.encode(file.document)
		if err == nil {
			err = os.WriteFile(filepath.Join(directory, file.name), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file.name, err)
		}
	}
	return nil
}

// Sizingdocs prints docs/sizing.md.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := writePage(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sizingdocs:", err)
		os.Exit(1)
	}
}

// Sizingdocs prints docs/sizing.md.
package main

import (
	"fmt"
	"os"

	"github.com/kuberelay/kuberelay/hack/bench/sizing"
)

func main() {
	if err := sizing.WritePage(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sizingdocs:", err)
		os.Exit(1)
	}
}

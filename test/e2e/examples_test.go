//go:build !tools

package e2e

import "testing"

// examples contains the examples that need only Go. "make test-tools" also runs the others.
var examples = map[string]func(*testing.T) []string{"Go": goExample}

//go:build !tools

package e2e

import "testing"

// examples are the examples that need only Go. "make test-tools" has the others.
var examples = map[string]func(*testing.T) []string{"Go": goExample}

//go:build !tools

package e2e

import "testing"

// examples are those that need nothing but Go; "make test-tools" has the others.
var examples = map[string]func(*testing.T) []string{"Go": goExample}

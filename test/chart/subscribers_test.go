//go:build !tools

package chart

import "testing"

// subscribers are the examples that need only Go. "make test-tools" has the others.
var subscribers = map[string]func(*testing.T) []string{"Go": goSubscriber}

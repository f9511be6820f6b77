//go:build !tools

package chart

import "testing"

// subscribers are those that need nothing but Go; "make test-tools" has the others.
var subscribers = map[string]func(*testing.T) []string{"Go": goSubscriber}

//go:build !tools

package chart

import "testing"

// subscribers contains the example subscribers that need only Go. With the build tag of "make
// test-tools", it contains the others too.
var subscribers = map[string]func(*testing.T) []string{"Go": goSubscriber}

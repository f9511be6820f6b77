package event

import (
	"strings"
	"sync"

	"github.com/kuberelay/kuberelay/internal/redaction"
)

// Converter holds the state that the [Decoder]s of a process share. Several goroutines can
// use it at once.
type Converter struct {
	key   *redaction.Key
	names sync.Map // interned strings, for the few values that every object repeats
}

// NewConverter returns a Converter that hashes values of objects of the named cluster with
// the given key; see [redaction.NewKey].
func NewConverter(redactionKey []byte, cluster string) *Converter {
	return &Converter{key: redaction.NewKey(redactionKey, cluster)}
}

// intern returns the same string for all equal strings. It is for names of types, of which
// a cluster has hundreds.
func (c *Converter) intern(s string) string {
	if known, ok := c.names.Load(s); ok {
		return known.(string)
	}
	s = strings.Clone(s)
	known, _ := c.names.LoadOrStore(s, s)
	return known.(string)
}

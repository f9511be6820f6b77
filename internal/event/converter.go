package event

import (
	"bytes"
	"crypto/rand"
	"strings"
	"sync"
)

// Converter is what the [Decoder]s of a process share. It may be used by several
// goroutines at once.
type Converter struct {
	key   []byte
	ours  bool     // the key was made up: hashes are others after a restart
	names sync.Map // string to the same string, for the few values that every object repeats
}

// NewConverter makes a Converter that hashes the values of Secrets with the given
// key. Replicas and restarts need the same key, or each shows every value as
// changed. Without a key it makes one up, for its own lifetime: a hash without a
// key would let anyone who reads the bus try passwords.
func NewConverter(redactionKey []byte) *Converter {
	c := &Converter{key: bytes.Clone(redactionKey)}
	if len(c.key) == 0 {
		c.key = make([]byte, 32)
		c.ours = true
		rand.Read(c.key) // never fails
	}
	return c
}

// intern gives one string for all that are equal to s. It is meant for the names
// of types, of which a cluster has hundreds.
func (c *Converter) intern(s string) string {
	if known, ok := c.names.Load(s); ok {
		return known.(string)
	}
	s = strings.Clone(s)
	known, _ := c.names.LoadOrStore(s, s)
	return known.(string)
}

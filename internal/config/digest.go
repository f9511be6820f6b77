package config

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// digestBytes is the length of a digest. Eight bytes are enough to tell two values apart.
const digestBytes = 8

// Digests returns a digest of each setting that determines the contents of the bus, keyed by the
// variable's name. Two processes with the same salt have the same digest for the same value. The order
// of a list does not matter. A digest does not show the value, but anyone who guesses the value can
// confirm it.
func (c Config) Digests(salt string) map[string]string {
	all := map[string]string{}
	for _, v := range variables(&c) {
		if v.tag.Get("decides") != "bus" {
			continue
		}
		sum := sha256.Sum256([]byte(strings.Join(append([]string{salt, v.Name}, v.items()...), "\x00")))
		all[v.Name] = hex.EncodeToString(sum[:digestBytes])
	}
	return all
}

// Differing returns the variables whose digest differs from that in digests, which another process
// made with the same salt. It skips variables for which only one of the processes has a digest, because
// the processes can be of different releases.
func (c Config) Differing(salt string, digests map[string]string) []string {
	differ := []string{}
	for name, is := range c.Digests(salt) {
		if other, known := digests[name]; known && other != is {
			differ = append(differ, name)
		}
	}
	slices.Sort(differ)
	return differ
}

// items returns the value as a sorted list without duplicates, because neither order nor repetition
// in the environment matters.
func (v variable) items() []string {
	var items []string
	switch x := v.value.Interface().(type) {
	case List:
		items = slices.Clone(x)
	case Paths:
		items = slices.Clone(x)
	default:
		return []string{v.text()}
	}
	slices.Sort(items)
	return slices.Compact(items)
}

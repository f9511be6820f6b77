// Package redaction replaces values in objects with keyed hashes. A hash shows that a value
// changed, but not the value.
//
// Guarantees:
//
//   - Without the key, a hash reveals only whether the value at one place in one object of one
//     cluster changed. Equal values in two places, objects, or clusters have different hashes.
//   - The choice of fields to hash does not depend on the values, so it reveals nothing about them.
//   - In a state that was read from the bus, a value that is already a hash stays unchanged.
//
// Limits: names stay readable, such as those of objects and of the fields in a Secret's data. The
// exceptions are the names of a Secret's labels and annotations.
package redaction

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"regexp"
	"strings"
)

const prefix = "hmac-sha256:"

// Key hashes the values of the objects of one cluster. Several goroutines can use it at
// once.
type Key struct {
	key    []byte
	random bool
}

// NewKey derives the key of a cluster. Replicas and restarted processes need the same key, because
// every value appears changed under another key. If key is empty, NewKey generates a random one. A
// hash without a key would let anyone who reads the bus guess passwords.
func NewKey(key []byte, cluster string) *Key {
	random := len(key) == 0
	if random {
		key = make([]byte, 32)
		rand.Read(key) // never fails
	}
	h := hmac.New(sha256.New, key)
	writeParts(h, "cluster", cluster)
	return &Key{h.Sum(nil), random}
}

// Random reports whether the key, and with it every hash, changes with each start.
func (k *Key) Random() bool { return k.random }

// Object identifies an object. It is part of each hash.
type Object struct{ Group, Resource, Namespace, Name string }

// Hash returns "hmac-sha256:" and the hash of a value at its place. A place is an object and the
// path to the value from the object's root, as names and list positions. A value that is not a
// string is hashed as JSON.
func (k *Key) Hash(o Object, path []string, value any) string {
	form := "text"
	s, ok := value.(string)
	if !ok {
		form, s = "json", encode(value)
	}
	h := hmac.New(sha256.New, k.key)
	writeParts(h, o.Group, o.Resource, o.Namespace, o.Name)
	writeParts(h, path...)
	writeParts(h, form, s)
	return prefix + hex.EncodeToString(h.Sum(nil))
}

// writeParts writes the number of parts, and each part after its length. Different lists of parts
// therefore never give the same bytes.
func writeParts(h io.Writer, parts ...string) {
	length := func(n int) {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], uint64(n))
		h.Write(b[:]) //nolint:errcheck // a hash accepts everything
	}
	length(len(parts))
	for _, part := range parts {
		length(len(part))
		h.Write([]byte(part)) //nolint:errcheck // as above
	}
}

// IsHash reports whether a value has the form of a hash.
func IsHash(value any) bool {
	s, _ := value.(string)
	digits, ok := strings.CutPrefix(s, prefix)
	_, err := hex.DecodeString(digits)
	return ok && err == nil && len(digits) == 2*sha256.Size
}

// isEncodedHash reports whether a value is the Base64 of a hash.
func isEncodedHash(value any) bool {
	s, _ := value.(string)
	decoded, err := base64.StdEncoding.DecodeString(s)
	return err == nil && IsHash(string(decoded))
}

// hashes matches a hash, and the Base64 form of a hash.
var hashes = regexp.MustCompile(prefix + `[0-9a-f]{64}|` + base64.StdEncoding.EncodeToString([]byte(prefix)) + `[0-9A-Za-z+/]{86}==`)

// Masked returns a text without the digits of its hashes. With a random key, only those digits
// change at a restart.
func Masked(text []byte) []byte { return hashes.ReplaceAll(text, []byte(prefix)) }

func encode(value any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(value) // cannot fail, because the value was decoded from JSON
	return strings.TrimSuffix(b.String(), "\n")
}

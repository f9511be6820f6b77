package event

import (
	"encoding/hex"
	"fmt"
)

// Digest identifies the content of an object as it is published. The zero value means no digest.
//
// A projected digest identifies the meaning of the content. An object has a projected digest if its
// shape can drop fields (see [Digest.Projected]). Two objects have the same projected digest if
// their published content is equal, except for resourceVersion and generation, which also change
// when a dropped field changes. A projected digest is the first half of the SHA-256 of that content
// as JSON, with sorted keys and without spaces.
//
// A text digest identifies the text of an object whose shape drops no fields. It is the xxHash64
// of the published JSON, which keeps the API server's text unless a value is hashed. Computing it
// takes a microsecond for 8 KB. Two texts with different digests can have the same meaning. A text
// digest is not collision resistant: someone can construct two objects with the same digest.
//
// Without a redaction key, the hashes that replace secret values change with each start. An object with
// such hashes has a text digest that ignores the digits of the hashes.
type Digest [16]byte

// textSize is the number of bytes that a text digest uses.
const textSize = 8

// None reports whether d is the zero value, which means no digest.
func (d Digest) None() bool { return d == Digest{} }

// Projected reports whether d is a projected digest.
func (d Digest) Projected() bool {
	return [len(d) - textSize]byte(d[textSize:]) != [len(d) - textSize]byte{}
}

// String returns the digest in hex, with 16 digits, or 32 if it is projected. It returns "" if d is
// the zero value.
func (d Digest) String() string {
	switch {
	case d.None():
		return ""
	case d.Projected():
		return hex.EncodeToString(d[:])
	}
	return hex.EncodeToString(d[:textSize])
}

// MarshalText returns the form of String.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (d *Digest) UnmarshalText(text []byte) (err error) {
	*d, err = parseDigest(string(text))
	return err
}

// parseDigest is the inverse of String.
func parseDigest(s string) (Digest, error) {
	var d Digest
	if s == "" {
		return d, nil
	}
	if n := len(s); n != 2*len(d) && n != 2*textSize {
		return d, fmt.Errorf("digest %q does not have %d or %d hex digits", s, 2*textSize, 2*len(d))
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return Digest{}, fmt.Errorf("digest %q does not have %d or %d hex digits", s, 2*textSize, 2*len(d))
	}
	return d, nil
}

package event

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"

	"github.com/cespare/xxhash/v2"
)

// Digest identifies the content of an object as it is published. The zero value is no
// digest.
//
// If fields of the object are dropped (see [Digest.Projected]), the digest is of the
// meaning of the content: two objects have the same digest if their published content is
// equal, except for resourceVersion and generation, which change with dropped fields too.
// It is the first half of the SHA-256 of that content as JSON, with sorted keys and without
// spaces.
//
// If the object is published whole, the digest is of its text: the xxHash64 of all of the
// JSON, as the API server wrote it. Two texts with different digests can have the same
// meaning. It takes a microsecond for 8 KB, and does not resist someone who constructs two
// objects with the same digest.
//
// If hashes change with each start, because there is no redaction key, an object with hashes
// has the second form of digest, without the digits of the hashes.
type Digest [16]byte

// textSize is the number of bytes of a digest that hold the hash of a text.
const textSize = 8

// None reports whether there is no digest.
func (d Digest) None() bool { return d == Digest{} }

// Projected reports whether it is the digest of an object with dropped fields.
func (d Digest) Projected() bool {
	return [len(d) - textSize]byte(d[textSize:]) != [len(d) - textSize]byte{}
}

// String returns the digest in hex, with 16 digits, or 32 if it is projected. It returns ""
// if there is none.
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

// textDigest returns the digest of an object that is published whole.
func textDigest(text []byte) (d Digest) {
	binary.BigEndian.PutUint64(d[:], max(1, xxhash.Sum64(text)))
	return d
}

// DigestOf returns the digest of an object after a projection that leaves b.
func DigestOf(b Body) (Digest, error) {
	text, err := b.JSON()
	if err != nil {
		return Digest{}, err
	}
	content, err := tree(text)
	if err != nil {
		return Digest{}, err
	}
	return digestOf(content)
}

// digestOf returns the digest of a decoded object, which it does not change.
func digestOf(content map[string]any) (Digest, error) {
	if metadata, ok := content["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "resourceVersion")
		delete(metadata, "generation")
		content = maps.Clone(content)
		content["metadata"] = metadata
	}
	text, err := encode(content)
	if err != nil {
		return Digest{}, err
	}
	sum := sha256.Sum256(text)
	return Digest(sum[:len(Digest{})]), nil
}

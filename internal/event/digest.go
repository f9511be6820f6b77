package event

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
)

// Digest stands for the content of an object of which a part is left out: two objects
// have the same if what is sent of them is the same, but for resourceVersion and
// generation, which change with what is left out too. It is the first half of the
// SHA-256 of that content as JSON, keys sorted, without spaces. The zero value is that
// of an object that is sent whole.
type Digest [16]byte

// None tells whether there is no digest.
func (d Digest) None() bool { return d == Digest{} }

// String is the digest in hex, "" for none.
func (d Digest) String() string {
	if d.None() {
		return ""
	}
	return hex.EncodeToString(d[:])
}

// MarshalText and UnmarshalText have the form of String.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is as MarshalText.
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
	if len(s) != hex.EncodedLen(len(d)) {
		return d, fmt.Errorf("digest %q is not of %d hex digits", s, 2*len(d))
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return Digest{}, fmt.Errorf("digest %q is not of %d hex digits", s, 2*len(d))
	}
	return d, nil
}

// DigestOf is the digest of an object that is sent as it is.
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

// digestOf takes the tree of an object, of which it changes nothing.
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

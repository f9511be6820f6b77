package event

import "fmt"

// Body is a Kubernetes object as JSON, without a final newline. It has neither
// metadata.managedFields nor the last-applied annotation, and only keyed hashes of the
// values of a Secret. The cache keeps it compressed. The zero value is no object.
type Body struct {
	bytes  []byte
	packed *codec // nil if bytes are the JSON itself
}

// JSON returns an uncompressed body. It takes ownership of b, which is not nil.
func JSON(b []byte) Body { return Body{bytes: b} }

// None reports whether there is no object.
func (b Body) None() bool { return b.bytes == nil }

// Size returns the number of bytes in memory.
func (b Body) Size() int { return len(b.bytes) }

// String returns the size only, to keep the content out of logs.
func (b Body) String() string { return fmt.Sprintf("%d bytes", len(b.bytes)) }

// JSON returns the text, or nil if there is none. The text is read-only, because it may be
// the body's own memory.
func (b Body) JSON() ([]byte, error) { return b.into(nil) }

// into is JSON, and uses the given memory if it is large enough.
func (b Body) into(memory []byte) ([]byte, error) {
	if b.packed == nil {
		return b.bytes, nil
	}
	return b.packed.unpack(memory, b.bytes)
}

package event

import "fmt"

// Body is a Kubernetes object as JSON, without a final newline. It holds neither
// metadata.managedFields nor the last-applied annotation, and of a Secret only keyed
// hashes of its values. In a cache it is kept compressed. The zero value is no object.
type Body struct {
	bytes  []byte
	packed *codec // nil where bytes are the JSON itself
}

// JSON is the body that is not compressed. It takes over b, which is not nil.
func JSON(b []byte) Body { return Body{bytes: b} }

// None tells whether there is no object.
func (b Body) None() bool { return b.bytes == nil }

// Size is how many bytes are kept.
func (b Body) Size() int { return len(b.bytes) }

// String keeps what is in it out of logs.
func (b Body) String() string { return fmt.Sprintf("%d bytes", len(b.bytes)) }

// JSON gives the text, nil for none. It is read-only: it may be the body's own.
func (b Body) JSON() ([]byte, error) { return b.into(nil) }

// into is JSON with memory to use, if there is enough of it.
func (b Body) into(memory []byte) ([]byte, error) {
	if b.packed == nil {
		return b.bytes, nil
	}
	return b.packed.unpack(memory, b.bytes)
}

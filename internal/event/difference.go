package event

import (
	"github.com/kuberelay/kuberelay/internal/event/codec"
	"github.com/kuberelay/kuberelay/internal/jsoncompare"
)

// maxChanged is the maximum length of the attribute "changed", in bytes.
const maxChanged = 2048

// moreChanged is the last entry of the attribute if some places are missing from it, because they
// don't fit or take too much work to find. It can't be a place, because a place begins with a slash.
const moreChanged = "…"

// changedPlaces returns the value of the attribute "changed": the places where two objects differ.
// It leaves out the resourceVersion, which always differs. It returns "" if the objects don't
// differ anywhere else.
func changedPlaces(before, after []byte) (string, error) {
	var b []byte
	fits := 0 // length of b that leaves room for moreChanged
	more := false
	complete, err := jsoncompare.Each(before, after, func(pointer []byte) bool {
		if string(pointer) == "/metadata/resourceVersion" {
			return true
		}
		if len(b)+len(pointer) <= maxChanged { // otherwise it cannot fit, and might be very long
			b = appendPlace(b, pointer)
		} else {
			more = true
		}
		more = more || len(b) > maxChanged
		if len(b)+len(","+moreChanged) <= maxChanged {
			fits = len(b)
		}
		return !more
	})
	if err != nil {
		return "", err
	}
	if more = more || !complete; !more {
		return string(b), nil
	}
	if b = b[:fits]; fits > 0 {
		b = append(b, ',')
	}
	return string(b) + moreChanged, nil
}

// SameContent reports whether two objects are equal. It ignores apiVersion, because the preferred
// version of a group can change, and resourceVersion, because the delete of an object has a version
// of its own. It returns false if the comparison takes too much work.
func SameContent(a, b Body) (bool, error) {
	before, memory, err := unpacked(a)
	defer codec.Free(memory)
	if err != nil {
		return false, err
	}
	after, memory, err := unpacked(b)
	defer codec.Free(memory)
	if err != nil {
		return false, err
	}
	same := true
	complete, err := jsoncompare.Each(before, after, func(pointer []byte) bool {
		same = string(pointer) == "/apiVersion" || string(pointer) == "/metadata/resourceVersion"
		return same
	})
	return same && complete && err == nil, err
}

// appendPlace appends a JSON Pointer, with a comma before it unless it is the first. It
// percent-encodes bytes outside ASCII, as in the URI fragment of RFC 6901, section 6. It also
// percent-encodes commas, percent signs, spaces, and control characters.
func appendPlace(b, pointer []byte) []byte {
	const hex = "0123456789ABCDEF"
	if len(b) > 0 {
		b = append(b, ',')
	}
	for _, c := range pointer {
		if c <= ' ' || c > '~' || c == ',' || c == '%' {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

// maxPatch is the length in bytes up to which a patch may be longer than the object.
const maxPatch = 64 << 10

// PatchOf returns the JSON Patch (RFC 6902) that turns before into after. Numbers keep their text.
// The same objects always give the same patch. The patch replaces the whole object if the
// comparison takes too much work, or if the patch would be longer than both maxPatch and the
// object.
func PatchOf(before, after []byte) ([]byte, error) {
	patch, limit := []byte{'['}, max(maxPatch, len(after))
	complete, err := jsoncompare.Edits(before, after, func(pointer, old, now []byte) bool {
		if len(patch) > 1 {
			patch = append(patch, ',')
		}
		patch = appendOperation(patch, pointer, old, now)
		return len(patch) <= limit
	})
	if err != nil {
		return nil, err
	}
	if !complete || len(patch) > limit {
		patch = appendOperation([]byte{'['}, nil, before, after)
	}
	return append(patch, ']'), nil
}

// appendOperation appends an operation of RFC 6902. old is nil for an add, and now is nil for a
// remove.
func appendOperation(patch, pointer, old, now []byte) []byte {
	op := "replace"
	switch {
	case old == nil:
		op = "add"
	case now == nil:
		op = "remove"
	}
	path, _ := EncodeJSON(string(pointer)) // encoding a string cannot fail
	patch = append(append(append(append(patch, `{"op":"`...), op...), `","path":`...), path...)
	if now != nil {
		patch = append(append(patch, `,"value":`...), now...)
	}
	return append(patch, '}')
}

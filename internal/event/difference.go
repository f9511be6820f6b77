package event

import (
	"encoding/json"

	"github.com/wI2L/jsondiff"

	"github.com/kuberelay/kuberelay/internal/jsoncompare"
)

// mostChanged is how long the attribute changed may be, in bytes.
const mostChanged = 2048

// moreChanged is its last entry where places are left out. It is no place: they begin with
// a slash.
const moreChanged = "…"

// changedPlaces is the attribute changed: the places where two objects differ, but for
// the resourceVersion, which always does. "" is none.
func changedPlaces(before, after []byte) (string, error) {
	var b []byte
	most := 0 // of b that leaves room to say that there is more
	more := false
	err := jsoncompare.Each(before, after, func(pointer []byte) bool {
		if string(pointer) == "/metadata/resourceVersion" {
			return true
		}
		if len(b)+len(pointer) <= mostChanged { // else it does not fit, and may be very long
			b = appendPlace(b, pointer)
		} else {
			more = true
		}
		more = more || len(b) > mostChanged
		if len(b)+len(","+moreChanged) <= mostChanged {
			most = len(b)
		}
		return !more
	})
	if err != nil {
		return "", err
	}
	if !more {
		return string(b), nil
	}
	if b = b[:most]; most > 0 {
		b = append(b, ',')
	}
	return string(b) + moreChanged, nil
}

// appendPlace appends a JSON Pointer, after a comma if it is not the first. What is not
// ASCII is percent-encoded, as where a pointer is the fragment of a URI (RFC 6901, section
// 6), and so are comma, percent sign, space and control characters.
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

// PatchOf is a JSON Patch (RFC 6902) that makes one object the other, numbers as they are
// written. It is the same each time.
func PatchOf(before, after []byte) ([]byte, error) {
	b, err := tree(before)
	if err != nil {
		return nil, err
	}
	a, err := tree(after)
	if err != nil {
		return nil, err
	}
	if jsoncompare.IsDeeper(b, jsoncompare.Deepest) || jsoncompare.IsDeeper(a, jsoncompare.Deepest) {
		whole, err := encode(a)
		if err != nil {
			return nil, err
		}
		return encode([]operation{{Op: jsondiff.OperationReplace, Value: whole}})
	}
	found, err := jsondiff.CompareWithoutMarshal(b, a)
	if err != nil {
		return nil, err
	}
	patch := make([]operation, len(found))
	for i, o := range found {
		patch[i] = operation{Op: o.Type, Path: o.Path}
		if o.Type != jsondiff.OperationRemove {
			if patch[i].Value, err = encode(o.Value); err != nil {
				return nil, err
			}
		}
	}
	return encode(patch)
}

// operation is one of RFC 6902. A remove has no value, and a value may be null.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Package normal brings objects into the normal form in which verify compares the cluster with the
// bus, and hashes them. It knows which fields an event leaves out of an object, and how an event
// redacts a Secret.
package normal

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// Digest identifies the data of an object. Two digests are equal if the data are equal as JSON,
// whatever the order of members, the spelling of numbers, and the escapes in strings.
type Digest [16]byte

// tree is a JSON object. Numbers keep their spelling.
type tree = wire.Tree

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Form brings objects into the normal form.
type Form struct {
	Key     []byte // key of the hashes that replace values; nil if unknown
	Cluster string // the cluster's name on the bus, which is a part of each hash

	// Contents means that some objects are published in part. An event does not show whether its
	// object is one of them.
	Contents bool
}

// Project drops some fields of an object and replaces others with hashes. The function hash returns
// the hash of a value at a path.
type Project func(t wire.Tree, hash func(path []string, v any) any)

// OfCluster brings an object that [Form.Strip] has stripped into the form that the bus must have.
// Without the key, hashes can't be compared, so each of them becomes the same text. project is nil
// if every field is published.
func (f Form) OfCluster(resource string, t tree, project Project) {
	o := objectAt(resource, t)
	if project != nil {
		project(t, func(path []string, v any) any {
			if IsSecret(resource) && len(path) > 0 {
				if path[0] == "data" || path[0] == "stringData" || path[0] == "metadata" && (len(path) == 1 || path[1] == "labels" || path[1] == "annotations") {
					return v // hashed below
				}
			}
			return f.hash(o, path, v)
		})
	}
	if IsSecret(resource) {
		f.secretOfCluster(o, t)
	}
	if f.Key == nil {
		forget(t) // as OfBus does, because a value in the cluster can look like a hash
	}
}

// Strip removes the fields that every event leaves out, and adds apiVersion and kind if they are
// missing.
func (f Form) Strip(apiVersion, kind string, t tree) {
	if s, _ := t["apiVersion"].(string); s == "" {
		t["apiVersion"] = apiVersion // items of a list have none
	}
	if s, _ := t["kind"].(string); s == "" {
		t["kind"] = kind
	}
	metadata, _ := t["metadata"].(tree)
	delete(metadata, "managedFields")
	if annotations, ok := metadata["annotations"].(tree); ok {
		if _, ok := annotations[lastApplied]; ok {
			delete(annotations, lastApplied)
			if len(annotations) == 0 {
				delete(metadata, "annotations")
			}
		}
	}
}

// OfBus is the counterpart of OfCluster for the data of an event. It removes no field, so a field that
// must not be in an event shows as a difference. OfBus reports whether a value, label, or annotation of
// a Secret is not redacted.
func (f Form) OfBus(resource string, t tree) (plain bool) {
	if IsSecret(resource) {
		plain = secretOfBus(t)
	}
	if f.Key == nil {
		forget(t)
	}
	return plain
}

// MetadataOnly returns the part of an object that a truncated event has.
func MetadataOnly(t wire.Tree) wire.Tree {
	return tree{"apiVersion": t["apiVersion"], "kind": t["kind"], "metadata": t["metadata"]}
}

// ContentOf returns the digest of an object without resourceVersion and generation, which change
// even if no published field changes.
func ContentOf(t tree) Digest { return DigestOf(wire.Unversioned(t)) }

// DigestOf returns the digest of a value. It is never zero, except with negligible probability.
func DigestOf(v any) (d Digest) {
	h := sha256.New()
	writeValue(h, v)
	copy(d[:], h.Sum(nil))
	return d
}

// writeValue writes an encoding of v to h. Two values have the same encoding only if they are equal.
func writeValue(h hash.Hash, v any) {
	switch v := v.(type) {
	case nil:
		h.Write([]byte{'n'})
	case bool:
		h.Write(strconv.AppendBool([]byte{'b'}, v))
	case json.Number:
		h.Write([]byte{'d'})
		writeString(h, normalNumber(string(v)))
	case string:
		h.Write([]byte{'s'})
		writeString(h, v)
	case []any:
		h.Write([]byte{'a'})
		writeLength(h, len(v))
		for _, e := range v {
			writeValue(h, e)
		}
	case tree:
		h.Write([]byte{'o'})
		writeLength(h, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			writeString(h, name)
			writeValue(h, v[name])
		}
	}
}

func writeString(h hash.Hash, s string) {
	writeLength(h, len(s))
	io.WriteString(h, s) //nolint:errcheck // a hash accepts everything
}

func writeLength(h hash.Hash, n int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}

// normalNumber returns the same spelling for all equal JSON numbers, without rounding: the digits
// without zeros at either end, and the exponent of the last digit. A number with an extreme
// exponent stays unchanged.
func normalNumber(s string) string {
	rest, negative := strings.CutPrefix(s, "-")
	mantissa, exponent, _ := strings.Cut(strings.ToLower(rest), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0"
	}
	e := 0
	if exponent != "" {
		var err error
		if e, err = strconv.Atoi(exponent); err != nil || e > 1<<30 || e < -1<<30 {
			return s
		}
	}
	significant := strings.TrimRight(digits, "0")
	e += len(digits) - len(significant) - len(fraction)
	if negative {
		significant = "-" + significant
	}
	return significant + "e" + strconv.Itoa(e)
}

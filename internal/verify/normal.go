package verify

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
)

// digest stands for an object's data: two are equal if the data mean the same as
// JSON, whatever the order of members, the spelling of numbers or the escapes in
// strings.
type digest [16]byte

// tree is a JSON object, decoded with numbers as they were written.
type tree = map[string]any

// decode reads one JSON object. An error never quotes it.
func decode(data []byte) (tree, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var t tree
	if err := d.Decode(&t); err != nil || t == nil {
		return nil, errors.New("the data is not a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the data is more than a JSON object")
	}
	return t, nil
}

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// form turns objects into the form in which cluster and bus are compared.
type form struct {
	key []byte // of the hashes of Secrets' values; nil if it is not known

	// contents: of some objects a part is sent, and of what was sent before that was so an
	// event says nothing.
	contents bool
}

// ofCluster hashes what an event hashes, of an object that was stripped. The object
// becomes what it should be on the bus, but for annotations of Secrets, see secret.
func (f form) ofCluster(r resource, t tree) {
	if isSecret(r.GroupResource().String()) {
		f.secret(t, f.hashed)
	}
}

// strip takes out of an object what every event leaves out.
func (f form) strip(r resource, t tree) {
	if s, _ := t["apiVersion"].(string); s == "" {
		t["apiVersion"] = r.GroupVersion().String() // items of a list have none
	}
	if s, _ := t["kind"].(string); s == "" {
		t["kind"] = r.Kind
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

// ofBus is the counterpart of ofCluster for an event's data. Nothing is taken out:
// what should not be there is a difference.
func (f form) ofBus(k event.Key, t tree) {
	if isSecret(k.GroupResource().String()) {
		f.secret(t, f.asHash)
	}
}

func isSecret(resource string) bool { return resource == "secrets" }

// secret replaces the values of a Secret. Without the key the hashes cannot be
// compared, and all that is left of a value is its name. Which annotations are
// hashed is left to the forwarder: here the plain ones are hashed too, so that both
// forms of one value are equal.
func (f form) secret(t tree, replace func(place secretPlace, v any) any) {
	metadata, _ := t["metadata"].(tree)
	place := secretPlace{}
	place.namespace, _ = metadata["namespace"].(string)
	place.name, _ = metadata["name"].(string)
	all := func(section string, in tree) {
		fields, _ := in[section].(tree)
		for field, v := range fields {
			place.section, place.field = section, field
			fields[field] = replace(place, v)
		}
	}
	all("data", t)
	all("stringData", t)
	all("annotations", metadata)
}

// secretPlace is where in which Secret a value stands. It is part of the hash.
type secretPlace struct{ namespace, name, section, field string }

const (
	hashPrefix  = "hmac-sha256:"
	withoutKey  = hashPrefix + "?"
	notRedacted = "not redacted"
)

// hashed gives what is on the bus for a value in the cluster.
func (f form) hashed(p secretPlace, v any) any {
	if f.key == nil {
		return withoutKey
	}
	kind := "text"
	s, ok := v.(string)
	if !ok { // the API server takes no such Secret
		kind = "json"
		b, _ := json.Marshal(v)
		s = string(b)
	}
	h := hmac.New(sha256.New, f.key)
	for _, part := range []string{p.namespace, p.name, p.section, p.field, kind, s} {
		writeString(h, part)
	}
	return hashPrefix + hex.EncodeToString(h.Sum(nil))
}

// asHash checks that a value on the bus is a hash.
func (f form) asHash(p secretPlace, v any) any {
	s, _ := v.(string)
	if p.section == "data" {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return notRedacted
		}
		s = string(b)
	}
	switch {
	case isHash(s) && f.key == nil:
		return withoutKey
	case isHash(s):
		return s
	case p.section == "annotations":
		return f.hashed(p, v)
	}
	return notRedacted
}

func isHash(s string) bool {
	digits, ok := strings.CutPrefix(s, hashPrefix)
	_, err := hex.DecodeString(digits)
	return ok && err == nil && len(digits) == 2*sha256.Size
}

// hasPlainValue tells whether the data of a Secret on the bus, in normal form,
// holds a value as it is.
func hasPlainValue(t tree) bool {
	for _, section := range []string{"data", "stringData"} {
		fields, _ := t[section].(tree)
		for _, v := range fields {
			if v == notRedacted {
				return true
			}
		}
	}
	return false
}

// metadataOnly is what a truncated event holds of an object.
func metadataOnly(t tree) tree {
	return tree{"apiVersion": t["apiVersion"], "kind": t["kind"], "metadata": t["metadata"]}
}

// contentOf is the digest of an object but for what changes with every change of it, also
// of what is not sent.
func contentOf(t tree) digest {
	metadata, _ := t["metadata"].(tree)
	metadata = maps.Clone(metadata)
	delete(metadata, "resourceVersion")
	delete(metadata, "generation")
	t = maps.Clone(t)
	t["metadata"] = metadata
	return digestOf(t)
}

// digestOf never returns the zero digest but by a chance that can be left out of
// account.
func digestOf(v any) (d digest) {
	h := sha256.New()
	writeValue(h, v)
	copy(d[:], h.Sum(nil))
	return d
}

// writeValue writes a value so that no two different ones are written alike.
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
	io.WriteString(h, s) //nolint:errcheck // a hash takes everything
}

func writeLength(h hash.Hash, n int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}

// normalNumber gives one spelling of each JSON number, exactly: its digits without
// zeros at either end, and the exponent of the last. Numbers whose exponent is out
// of all bounds stay as they are.
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

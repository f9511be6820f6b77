package wire

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Sequence is the attribute sequence.
type Sequence struct {
	Epoch   uint16
	Version string // a resourceVersion without leading zeros; "" if the event has none
}

const (
	epochDigits   = 4
	versionDigits = 20
)

// ParseSequence parses the attribute sequence.
func ParseSequence(s string) (Sequence, error) {
	epoch, version, ok := strings.Cut(s, ".")
	n, err := strconv.ParseUint(epoch, 10, 16)
	switch {
	case !ok:
		return Sequence{}, fmt.Errorf("sequence %q does not consist of an epoch and a version", s)
	case err != nil || !IsNumber(epoch):
		return Sequence{}, fmt.Errorf("sequence %q does not begin with an epoch", s)
	case len(epoch) != epochDigits: // the last epoch is 9999
		return Sequence{}, fmt.Errorf("the epoch of sequence %q does not have %d digits", s, epochDigits)
	case !IsNumber(version): // an API whose versions have no order
		return Sequence{uint16(n), version}, nil
	case len(version) < versionDigits || len(version) > versionDigits && version[0] == '0':
		return Sequence{}, fmt.Errorf("the version of sequence %q does not have %d digits", s, versionDigits)
	}
	return Sequence{uint16(n), withoutZeros(version)}, nil
}

// Is reports whether the sequence has this resourceVersion.
func (s Sequence) Is(version string) bool {
	if IsNumber(version) {
		version = withoutZeros(version)
	}
	return s.Version == version
}

func withoutZeros(digits string) string { return cmp.Or(strings.TrimLeft(digits, "0"), "0") }

// IsNumber reports whether s consists only of digits. A resourceVersion with an order has this form.
func IsNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Time parses a time in the format of RFC 3339.
func Time(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not an RFC 3339 time", s)
	}
	return t, nil
}

// Tree is a JSON object. Numbers keep their spelling.
type Tree = map[string]any

// ParseTree parses one JSON object. An error never quotes it.
func ParseTree(data []byte) (Tree, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var t Tree
	if err := d.Decode(&t); err != nil || t == nil {
		return nil, errors.New("the data is not a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the data is more than a JSON object")
	}
	return t, nil
}

// changeSchema is the dataschema of an event whose data is a change.
const changeSchema = "https://kuberelay.io/schemas/change/v1"

// ObjectOf returns the object in the data of an event.
func (e Event) ObjectOf() (Tree, error) {
	t, err := ParseTree(e.Data)
	if err != nil {
		return nil, err
	}
	switch schema := e.Get("dataschema"); schema {
	case "":
		return t, nil
	case changeSchema:
		object, ok := t["object"].(Tree)
		if !ok {
			return nil, errors.New("the data is a change without an object")
		}
		return object, nil
	default:
		return nil, fmt.Errorf("dataschema is %q, want none or %q", schema, changeSchema)
	}
}

// unescape decodes a name in a JSON pointer (RFC 6901).
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// maxNames limits the depth of the trees that [Event.OthersOf] returns. Only the first three names of a path
// matter for a Secret, and the path in a compressed record can have millions of them.
const maxNames = 5

// OthersOf returns what the data of a change shows in addition to the object: the previous state, and
// each value of the patch as an object that has only this value. For metadata that the patch removes,
// the value is nil, because the name can be secret too. OthersOf returns nil for other data.
func (e Event) OthersOf() (others []Tree) {
	t, err := ParseTree(e.Data)
	if err != nil || e.Get("dataschema") != changeSchema {
		return nil
	}
	add := func(v any) {
		if other, ok := v.(Tree); ok {
			others = append(others, other)
		}
	}
	add(t["previous"])
	patch, _ := t["patch"].([]any)
	for _, element := range patch {
		operation, _ := element.(Tree)
		value, has := operation["value"]
		path, _ := operation["path"].(string)
		if !has && !strings.HasPrefix(path, "/metadata/") {
			continue
		}
		names := strings.SplitN(path, "/", 1+maxNames) // the last one has the rest of a longer path
		for i := len(names) - 1; i > 0; i-- {
			value = Tree{unescape.Replace(names[i]): value}
		}
		add(value)
	}
	return others
}

// Unversioned returns an object without resourceVersion and generation. It does not change the
// object.
func Unversioned(object Tree) Tree {
	if metadata, ok := object["metadata"].(Tree); ok {
		object, metadata = maps.Clone(object), maps.Clone(metadata)
		delete(metadata, "resourceVersion")
		delete(metadata, "generation")
		object["metadata"] = metadata
	}
	return object
}

// Digest returns the expected digest attribute of an object that is published in part. It does not
// change the object.
func Digest(object Tree) (string, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b) // sorts keys, and escapes U+2028 and U+2029
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(Unversioned(object)); err != nil {
		return "", fmt.Errorf("encode the object: %w", err)
	}
	sum := sha256.Sum256(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return hex.EncodeToString(sum[:len(sum)/2]), nil
}

// ClaimData is the data of a claim: the owner of a cluster name.
type ClaimData struct {
	UID      string
	Replaces string // "" for none
	Epoch    uint16
	Claimed  time.Time
}

// ParseClaim parses the data of a claim.
func ParseClaim(data []byte) (ClaimData, error) {
	t, err := ParseTree(data)
	if err != nil {
		return ClaimData{}, err
	}
	var c ClaimData
	if c.UID, _ = t["uid"].(string); c.UID == "" {
		return ClaimData{}, errors.New("the claim has no uid")
	}
	if replaces, there := t["replaces"]; there {
		if c.Replaces, _ = replaces.(string); c.Replaces == "" {
			return ClaimData{}, errors.New("replaces is empty or not a string")
		}
	}
	claimed, _ := t["claimed"].(string)
	if c.Claimed, err = Time(claimed); err != nil {
		return ClaimData{}, fmt.Errorf("the time of the claim: %w", err)
	}
	epoch, err := natural(t, "epoch", 16)
	c.Epoch = uint16(epoch)
	return c, err
}

// SnapshotData is the data of a snapshot marker.
type SnapshotData struct {
	Group, Resource string
	Count           uint64
}

// ParseSnapshot parses the data of a snapshot marker.
func ParseSnapshot(data []byte) (SnapshotData, error) {
	t, err := ParseTree(data)
	if err != nil {
		return SnapshotData{}, err
	}
	group, ok1 := t["group"].(string)
	resource, ok2 := t["resource"].(string)
	if !ok1 || !ok2 {
		return SnapshotData{}, errors.New("the marker does not name a group and a resource")
	}
	count, err := natural(t, "count", 63)
	return SnapshotData{group, resource, count}, err
}

// Point is the content of a consistency point.
type Point struct {
	Group, Resource, Version string
	Objects                  uint64
	AsOf                     time.Time
}

// ParsePoint reads a consistency point from its attributes. If the event has data, the data must
// match the attributes.
func ParsePoint(m Event) (Point, error) {
	objects, err := strconv.ParseUint(m.Get("objects"), 10, 63)
	if err != nil {
		return Point{}, errors.New("objects is not an integer from 0 to 2^63-1")
	}
	p := Point{Group: m.Get("group"), Resource: m.Get("resource"), Version: m.Get("resourceversion"), Objects: objects}
	if p.AsOf, err = Time(m.Get("time")); err != nil {
		return Point{}, err
	}
	if p.Resource == "" || p.Version == "" {
		return Point{}, errors.New("it does not name a resource and a version")
	}
	if len(m.Data) == 0 {
		return p, nil
	}
	t, err := ParseTree(m.Data)
	if err != nil {
		return Point{}, err
	}
	n, err := natural(t, "objects", 63)
	if err != nil || n != p.Objects || t["group"] != p.Group || t["resource"] != p.Resource || t["resourceVersion"] != p.Version || t["asOf"] != m.Get("time") {
		return Point{}, errors.New("the data does not match the attributes")
	}
	return p, nil
}

// WriterData is the data of a writer's marker.
type WriterData struct {
	Topic     string
	Partition int
}

// ParseWriter parses the data of a writer's marker.
func ParseWriter(data []byte) (WriterData, error) {
	t, err := ParseTree(data)
	if err != nil {
		return WriterData{}, err
	}
	topic, ok := t["topic"].(string)
	if _, named := t["writer"].(string); !ok || !named {
		return WriterData{}, errors.New("the marker does not name a writer and a topic")
	}
	n, err := natural(t, "partition", 31)
	return WriterData{topic, int(n)}, err
}

// natural returns a member that is an integer from 0 to 2^bits-1.
func natural(t Tree, name string, bits int) (uint64, error) {
	number, ok := t[name].(json.Number)
	n, err := strconv.ParseUint(string(number), 10, bits)
	if !ok || err != nil {
		return 0, fmt.Errorf("%s is not an integer from 0 to 2^%d-1", name, bits)
	}
	return n, nil
}

package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/jsoncompare"
	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// AckedFrom decodes an entry of the checkpoint from an object's event. It leaves Position and
// [Acked.StoredAt] to the caller. get returns the value of a named attribute without the escapes of
// the protocol, or "" if it is absent. A marker, an event of another kind, and a malformed event
// cause an error with an [InvalidReason].
func AckedFrom(get func(attribute string) string) (Acked, error) {
	fail := func(reason InvalidReason, err error) (Acked, error) {
		return Acked{}, Invalid(reason, fmt.Errorf("read event %.100q: %w", get("id"), err))
	}
	t := Type(get("type"))
	a := Acked{
		UID:             unescape(get("uid")), // undoes text
		ResourceVersion: unescape(get("resourceversion")),
		Deleted:         t.IsRemoval(),
		Deselected:      t == Deselected,
	}
	switch t {
	case Created, Updated, Deleted, Snapshot, Deselected:
	default:
		return fail(InvalidEvent, fmt.Errorf("type %.100q is not the type of an object event", t))
	}
	var err error
	if a.Epoch, err = parseSequence(get("sequence"), a.ResourceVersion); err != nil {
		return fail(InvalidAttribute, err)
	}
	if a.Digest, err = parseDigest(get(digest)); err != nil {
		return fail(InvalidAttribute, err)
	}
	if err := a.Validate(); err != nil {
		return fail(ReasonOf(err), err)
	}
	if at, err := time.Parse(time.RFC3339Nano, get("time")); err == nil {
		a.Time = milliseconds(at)
	}
	return a, nil
}

// maxState is the maximum size in bytes of a state from the bus. Objects from a watch have the same
// limit. A larger state counts as unknown. etcd stores objects of up to 1.5 MiB, and JSON can need
// six times as many bytes for them.
const maxState = 16 << 20

// ObjectFromData makes an object from an event on the bus. The forwarder uses it as the last state
// of an object that was deleted while no forwarder ran. Body is empty if the bus does not have the
// whole object: the event is truncated, has an unknown final state, is larger than [maxState], or
// has duplicate members, which parsers read differently. The delete of such an object has the
// attribute finalstateunknown. get is as in [AckedFrom]. The function copies data.
func ObjectFromData(get func(attribute string) string, data []byte) (*Object, error) {
	data, err := ObjectIn(get, data)
	if err != nil {
		return nil, fmt.Errorf("read event %q: %w", get("id"), err)
	}
	o, err := objectFromData(data)
	switch {
	case err != nil:
	case text(string(o.UID)) != get("uid"):
		err = fmt.Errorf("data has uid %q, want %q", o.UID, get("uid"))
	case o.ResourceVersion != "" && text(o.ResourceVersion) != get("resourceversion"):
		err = fmt.Errorf("data has resourceVersion %q, want %q", o.ResourceVersion, get("resourceversion"))
	}
	if err != nil {
		return nil, fmt.Errorf("read event %q: %w", get("id"), err)
	}
	if get(truncated) != "true" && get(finalStateUnknown) != "true" && len(data) <= maxState && !isAmbiguous(data) {
		o.Body = JSON(bytes.Clone(data))
		if o.Digest, err = parseDigest(get(digest)); err != nil {
			return nil, fmt.Errorf("read event %q: %w", get("id"), err)
		}
	}
	return o, nil
}

// truncatedFromData returns apiVersion, kind, and metadata of the object in a truncated event. It
// returns no body if the event is not truncated, or if its data is larger than any object or has
// duplicate members. get is as in [AckedFrom]. The function copies data.
func truncatedFromData(get func(attribute string) string, data []byte) (Body, error) {
	if get(truncated) != "true" || len(data) > maxState {
		return Body{}, nil
	}
	object, err := ObjectIn(get, data)
	if err != nil {
		return Body{}, fmt.Errorf("read event %q: %w", get("id"), err)
	}
	if isAmbiguous(object) {
		return Body{}, nil
	}
	return JSON(bytes.Clone(object)), nil
}

// ObjectIn returns the object in the data of an event: all of the data, or a part of it if the
// data is a change. The result shares the memory of data. get is as in [AckedFrom].
func ObjectIn(get func(attribute string) string, data []byte) ([]byte, error) {
	if get(dataSchema) != SchemaChange {
		return data, nil
	}
	object, err := valueOf(data, "object")
	if err != nil || object == nil {
		return nil, errors.New("data is not a change of a Kubernetes object")
	}
	return object, nil
}

// objectFromData scans the text instead of decoding it. A decoded object of many small values takes
// many times the memory of its text, and anyone who can write to the bus can publish such an
// object.
func objectFromData(data []byte) (*Object, error) {
	o := &Object{}
	var uid string
	fields := map[string]*string{"apiVersion": &o.APIVersion, "kind": &o.Kind}
	metadata, err := texts(data, fields, "metadata")
	if err == nil && metadata != nil {
		fields = map[string]*string{"namespace": &o.Namespace, "name": &o.Name, "uid": &uid, "resourceVersion": &o.ResourceVersion}
		_, err = texts(metadata, fields, "")
	}
	if err != nil || metadata == nil {
		return nil, errors.New("data is not a Kubernetes object")
	}
	o.UID = types.UID(uid)
	return o, nil
}

// texts reads string members of an object. If a member's name is a key of the map to, texts stores
// the member's value in the string that the map entry points to. It returns the JSON of the member
// named other, or nil if the object has no such member.
func texts(object []byte, to map[string]*string, other string) (value []byte, err error) {
	s := jsonscan.New(object)
	for s.Object(); s.Next(); {
		name := string(s.Key())
		v := s.Skip()
		if field := to[name]; field != nil && s.Err() == nil {
			if err := json.Unmarshal(v, field); err != nil {
				return nil, err
			}
		}
		if name == other {
			value = v
		}
	}
	return value, s.End()
}

// isAmbiguous reports whether an object has duplicate members at any level. Parsers differ in which
// duplicate they use, and no API server writes such an object. A text also counts as ambiguous if
// it is not valid JSON, is nested too deeply for a comparison, or has more than maxStateMembers
// members.
func isAmbiguous(object []byte) bool {
	s, left := jsonscan.New(object), maxStateMembers
	return hasTwice(&s, &left, jsoncompare.MaxDepth) || s.End() != nil
}

// maxStateMembers is larger than the number of members of any object in etcd.
const maxStateMembers = 1 << 18

func hasTwice(s *jsonscan.Scanner, left *int, levels int) bool {
	if levels == 0 {
		return true
	}
	switch {
	case s.IsObject():
		var names [][]byte
		for s.Object(); s.Next(); {
			if *left--; *left < 0 {
				return true
			}
			names = append(names, s.Key())
			if hasTwice(s, left, levels-1) {
				return true
			}
		}
		all := len(names)
		slices.SortFunc(names, bytes.Compare)
		return len(slices.CompactFunc(names, bytes.Equal)) < all
	case s.IsArray():
		for s.Array(); s.NextItem(); {
			if hasTwice(s, left, levels-1) {
				return true
			}
		}
	default:
		s.Skip()
	}
	return false
}

// InvalidReason says what is wrong with a message on the bus. It is a metric label.
type InvalidReason string

// The reasons. Anyone who can write to the bus can cause them.
const (
	InvalidHeaders   InvalidReason = "headers"   // the headers cannot be parsed
	InvalidKey       InvalidReason = "key"       // the subject or the record key names no object
	InvalidEvent     InvalidReason = "event"     // not a CloudEvent, or not of a type that Kuberelay writes
	InvalidAttribute InvalidReason = "attribute" // an attribute is missing or malformed
	InvalidEpoch     InvalidReason = "epoch"     // the epoch is too high to be explained by restores
	InvalidPosition  InvalidReason = "position"  // no message can be at the position
	InvalidData      InvalidReason = "data"      // the data cannot be parsed
	InvalidBatch     InvalidReason = "batch"     // a batch of Kafka records is malformed, or of an unknown format
	InvalidSize      InvalidReason = "size"      // a batch of Kafka records is too large when decompressed
)

// InvalidReasons returns all reasons.
func InvalidReasons() []InvalidReason {
	return []InvalidReason{
		InvalidHeaders, InvalidKey, InvalidEvent, InvalidAttribute, InvalidEpoch, InvalidPosition, InvalidData,
		InvalidBatch, InvalidSize,
	}
}

type invalidError struct {
	reason InvalidReason
	err    error
}

func (e *invalidError) Error() string { return e.err.Error() }
func (e *invalidError) Unwrap() error { return e.err }

// Invalid returns err with the reason why a message is invalid.
func Invalid(reason InvalidReason, err error) error { return &invalidError{reason, err} }

// ReasonOf returns the reason from the [Invalid] error that err wraps, or InvalidEvent if err wraps
// none.
func ReasonOf(err error) InvalidReason {
	var invalid *invalidError
	if errors.As(err, &invalid) {
		return invalid.reason
	}
	return InvalidEvent
}

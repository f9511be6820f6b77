package event

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Builder builds the CloudEvents of one cluster. Its zero value is not usable. A Builder is safe
// for concurrent use.
type Builder struct {
	// Cluster is the cluster name in the attributes source and partitionkey. It must not be empty.
	Cluster string

	// Data is the form of the data in object events. The zero value means [DataObject].
	Data DataForm

	// Reshape converts a state read from the bus into the current form. See
	// decode.Converter.Reshape. If Reshape is nil, such states are published unchanged.
	Reshape func(Resource, *Object) *Object
}

// DataForm is the form of the data in object events.
type DataForm string

const (
	// DataObject means that the data is the object itself.
	DataObject DataForm = "object"
	// DataChange means that the data is the object, its previous state, and the patch between them,
	// with the dataschema [SchemaChange].
	DataChange DataForm = "change"
)

// Message builds the CloudEvent of one change. It sets Acked, and leaves Expected to the
// caller.
//
// Every attribute is a valid CloudEvents string. In the attribute "name", the characters that
// CloudEvents forbids are percent-encoded. Of these, a Kubernetes name can hold only control
// characters and noncharacters. The data contains the name without this encoding.
//
// The error wraps [ErrTooDeep] if c must be truncated. Any other error means that c contradicts
// itself, is incomplete, or has a corrupted body, so a retry cannot help. An error never contains
// the content of the object.
func (b Builder) Message(c Change) (*Message, error) {
	if err := b.check(c); err != nil {
		return nil, fmt.Errorf("build event of %s: %w", c.Key, err)
	}
	c.Object, c.Before = b.reshape(c.Resource, c.Object), b.reshape(c.Resource, c.Before)
	o := c.Object
	content, err := b.content(c)
	if err != nil {
		return nil, fmt.Errorf("build event of %s: %w", c.Key, err)
	}
	id := text(changeID(c))
	a := make(attributes, 0, 21)
	a.context(id, b.source(), c.Type, c.Resource.Path(c.Key), c.Observed, PartitionKey(b.Cluster, c.Key))
	if b.Data == DataChange {
		a.add(dataSchema, SchemaChange)
	}
	a.add("sequence", sequence(c.Epoch, o.ResourceVersion))
	a.add("apiversion", apiVersion(c))
	a.add("kind", kind(c))
	a.add("namespace", o.Namespace)
	a.add("name", o.Name)
	a.add("uid", string(o.UID))
	a.add("resourceversion", o.ResourceVersion)
	a.add("previousversion", c.Previous)
	if content.changed != "" {
		a = append(a, Attribute{"changed", content.changed}) // already a valid string; add would encode its '%' again
	}
	a.add(digest, o.Digest.String())
	a.add("cause", string(c.Cause))
	if c.Owner != nil {
		a.add("ownerkind", c.Owner.Kind)
		a.add("ownername", c.Owner.Name)
	}
	if o.Body.None() {
		a.add(finalStateUnknown, "true")
	}
	if c.Truncated {
		a.add(truncated, "true")
	}
	return &Message{
		ID: id, Key: c.Key, Attributes: a, Data: content.data, memory: content.memory,
		Acked: Acked{
			UID: string(o.UID), ResourceVersion: o.ResourceVersion, Epoch: c.Epoch,
			Deleted: c.Type.IsRemoval(), Deselected: c.Type == Deselected,
			Digest: o.Digest, Time: milliseconds(c.Observed),
		},
	}, nil
}

// reshape converts a state read from the bus into the current form. An earlier configuration or
// release might have published that state in another form.
func (b Builder) reshape(r Resource, o *Object) *Object {
	if b.Reshape == nil || o == nil || o.Shaped || o.Body.None() {
		return o
	}
	return b.Reshape(r, o)
}

// changeID returns a deterministic id: a retry, a restart, or another replica makes the same id for
// the same change.
func changeID(c Change) string {
	uid, after := string(c.Object.UID), strconv.FormatUint(c.After, 10)
	switch {
	case c.Repairs && c.Type == Deleted:
		return uid + ".deleted.repaired." + after
	case c.Repairs && c.Type == Deselected:
		return uid + ".deselected.repaired." + after
	case c.Repairs:
		return uid + "." + c.Object.ResourceVersion + ".repaired." + after
	case c.Type == Deleted:
		return uid + ".deleted"
	case c.Type == Deselected:
		return uid + ".deselected." + after
	case c.Type == Updated && c.After != 0:
		return uid + "." + c.Object.ResourceVersion + ".projected." + after
	case c.After != 0:
		return uid + "." + c.Object.ResourceVersion + ".selected." + after
	}
	return uid + "." + c.Object.ResourceVersion
}

// SchemaChange is the dataschema of events whose data is a change:
//
//	{"object": ..., "previous": ..., "patch": [...]}
//
// Events whose data is the object have no dataschema. See docs/events.md.
const SchemaChange = "https://kuberelay.io/schemas/change/v1"

// Attributes that this package also reads from events.
const (
	dataSchema = "dataschema"
	digest     = "digest"
)

// Attributes of type Boolean. In JSON they are true, not "true".
const (
	finalStateUnknown = "finalstateunknown"
	truncated         = "truncated"
)

func (b Builder) check(c Change) error {
	o := c.Object
	switch {
	case b.Cluster == "":
		return errors.New("the cluster has no name")
	case b.Data != "" && b.Data != DataObject && b.Data != DataChange:
		return fmt.Errorf("unknown form of data %q", b.Data)
	case c.Type != Created && c.Type != Updated && c.Type != Snapshot && !c.Type.IsRemoval():
		return fmt.Errorf("unknown type %q", c.Type)
	case c.Cause != CauseWatch && c.Cause != CauseSnapshot && c.Cause != CauseReconcile:
		return fmt.Errorf("unknown cause %q", c.Cause)
	case c.Observed.IsZero():
		return errors.New("no time of observation")
	case o == nil:
		return errors.New("no object")
	case c.Key.GroupResource() != c.Resource.GroupResource():
		return fmt.Errorf("resource is %s, want %s", c.Resource.GroupResource(), c.Key.GroupResource())
	case o.Namespace != c.Key.Namespace || o.Name != c.Key.Name:
		return fmt.Errorf("object is %q in namespace %q, want %q in %q", o.Name, o.Namespace, c.Key.Name, c.Key.Namespace)
	case o.Name == "":
		return errors.New("object has no name")
	case o.UID == "":
		return errors.New("object has no uid")
	case o.ResourceVersion == "" && !c.Type.IsRemoval():
		return errors.New("object has no resourceVersion")
	case o.Body.None() && !c.Type.IsRemoval():
		return errors.New("object has no body")
	case len(o.APIVersion) > MaxText:
		return fmt.Errorf("the apiVersion has %d bytes, and the limit is %d", len(o.APIVersion), MaxText)
	}
	return validVersion(string(o.UID), o.ResourceVersion)
}

func (b Builder) source() string { return "/kubernetes/" + url.PathEscape(b.Cluster) }

// apiVersion returns the object's apiVersion, or that of its resource if the object has none. It
// returns "" if the object is known only from the checkpoint and its type no longer exists.
func apiVersion(c Change) string {
	if c.Object.APIVersion != "" || c.Resource.Version == "" {
		return c.Object.APIVersion
	}
	return c.Resource.APIVersion()
}

// kind returns the object's kind, or that of its resource if the object has none. Like apiVersion, it
// returns "" if the object is known only from the checkpoint and its type no longer exists.
func kind(c Change) string {
	if c.Object.Kind != "" {
		return c.Object.Kind
	}
	return c.Resource.Kind
}

type attributes []Attribute

// add appends an attribute unless its value is empty, which CloudEvents forbids.
func (a *attributes) add(name, value string) {
	if value != "" {
		*a = append(*a, Attribute{Name: name, Value: text(value)})
	}
}

// context appends the attributes that every event begins with. It does not encode the values,
// because they are already valid CloudEvents strings, and a second encoding would change each '%'.
func (a *attributes) context(id, source string, t Type, subject string, observed time.Time, partitionKey string) {
	*a = append(*a,
		Attribute{"id", id},
		Attribute{"source", source},
		Attribute{"specversion", "1.0"},
		Attribute{"type", string(t)},
		Attribute{"subject", subject},
		Attribute{"time", observed.UTC().Format(time.RFC3339Nano)},
		Attribute{"datacontenttype", "application/json"},
		Attribute{"partitionkey", partitionKey},
	)
}

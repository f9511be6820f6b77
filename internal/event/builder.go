package event

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Builder makes the CloudEvents of one cluster. Its zero value is not usable;
// a Builder may be used by several goroutines at once.
type Builder struct {
	// Cluster names the cluster in source and partitionkey. It is not empty.
	Cluster string

	// Data is the form of the data of an object's event; the zero value is
	// [DataObject].
	Data DataForm
}

// DataForm says what the data of an object's event is.
type DataForm string

const (
	// DataObject: the bare object.
	DataObject DataForm = "object"
	// DataChange: the object, the state before and the patch between them, with the
	// dataschema [SchemaChange].
	DataChange DataForm = "change"
)

// Message makes the CloudEvent of one change, Acked filled in and Expected left to
// the caller.
//
// An attribute is a valid CloudEvents string whatever the object is called: a
// character that CloudEvents forbids (a control character, of what Kubernetes
// lets a name hold) is percent-encoded in name, and data holds the name as it is.
//
// An error means that c contradicts itself or lacks what every event has; it
// never holds the object's content. Trying again cannot help.
func (b Builder) Message(c Change) (*Message, error) {
	if err := b.check(c); err != nil {
		return nil, fmt.Errorf("build event of %s: %w", c.Key, err)
	}
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
		a = append(a, Attribute{"changed", content.changed}) // a valid string, and its '%' are not to be encoded
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
			Deleted: c.Type.Gone(), Deselected: c.Type == Deselected,
			Digest: o.Digest,
		},
	}, nil
}

// changeID is deterministic, so that a retry, a restart or another replica makes the
// same id of the same change.
func changeID(c Change) string {
	uid, after := string(c.Object.UID), strconv.FormatUint(c.After, 10)
	switch {
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
//	{"object": …, "previous": …, "patch": […]}
//
// Where the data is the bare object there is no dataschema. See docs/events.md.
const SchemaChange = "https://kuberelay.io/schemas/change/v1"

// Attributes of which events are read as well as made.
const (
	dataSchema = "dataschema"
	digest     = "digest"
)

// The attributes of type Boolean; in JSON they are true, not "true".
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
	case c.Type != Created && c.Type != Updated && c.Type != Snapshot && !c.Type.Gone():
		return fmt.Errorf("unknown type %q", c.Type)
	case c.Cause != CauseWatch && c.Cause != CauseSnapshot && c.Cause != CauseReconcile:
		return fmt.Errorf("unknown cause %q", c.Cause)
	case c.Observed.IsZero():
		return errors.New("no time of observation")
	case o == nil:
		return errors.New("no object")
	case c.Key.GroupResource() != c.Resource.GroupResource():
		return fmt.Errorf("resource is %s", c.Resource.GroupResource())
	case o.Namespace != c.Key.Namespace || o.Name != c.Key.Name:
		return fmt.Errorf("object is %q in namespace %q", o.Name, o.Namespace)
	case o.Name == "":
		return errors.New("object has no name")
	case o.UID == "":
		return errors.New("object has no uid")
	case o.ResourceVersion == "" && !c.Type.Gone():
		return errors.New("object has no resourceVersion")
	case o.Body.None() && !c.Type.Gone():
		return errors.New("object has no body")
	}
	return nil
}

func (b Builder) source() string { return "/kubernetes/" + url.PathEscape(b.Cluster) }

// apiVersion is "" where neither the object nor its resource has one: of an object
// that only the checkpoint knows, of a type that is gone.
func apiVersion(c Change) string {
	if c.Object.APIVersion != "" || c.Resource.Version == "" {
		return c.Object.APIVersion
	}
	return c.Resource.APIVersion()
}

// kind is "" where apiVersion is.
func kind(c Change) string {
	if c.Object.Kind != "" {
		return c.Object.Kind
	}
	return c.Resource.Kind
}

// attributes is a list under construction.
type attributes []Attribute

// add appends an attribute unless its value is empty, which CloudEvents does not
// allow.
func (a *attributes) add(name, value string) {
	if value != "" {
		*a = append(*a, Attribute{Name: name, Value: text(value)})
	}
}

// context appends what every event begins with. Its values are valid strings
// already; to encode their '%' once more would change them.
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

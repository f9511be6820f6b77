package replica

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// place is the location of a cluster's events on the bus.
type place struct {
	Prefix, Cluster string

	Records bool   // the bus is Kafka, where a key takes the place of the subject
	Topic   string // the Kafka topic; may be a template with {group} and {resource}
}

// address parses the subject or key of a message.
func (p place) address(d publish.Delivery) (wire.Address, error) {
	var a wire.Address
	var err error
	if p.Records {
		a, err = wire.ParseKey(d.Subject)
	} else {
		a, err = wire.ParseSubject(p.Prefix, d.Subject)
	}
	switch {
	case err != nil:
		return a, err
	case a.Cluster != p.Cluster:
		return a, fmt.Errorf("it belongs to cluster %q", a.Cluster)
	case p.Records:
		return a, p.checkTopic(a, d.Log)
	}
	return a, nil
}

// claimTopic is the resource whose topic has the claim if each resource has its own topic.
var claimTopic = wire.Object{Group: "kuberelay.io", Resource: "clusters"}

// checkTopic returns an error if a record is in the wrong topic or, for a writer's marker, in the wrong
// partition.
func (p place) checkTopic(a wire.Address, log publish.Log) error {
	of := a.Object
	switch a.Kind {
	case wire.OfWriter:
		if a.Topic != log.Topic || a.Partition != log.Partition {
			return fmt.Errorf("it is in partition %d of topic %s, but belongs in partition %d of topic %s", log.Partition, log.Topic, a.Partition, a.Topic)
		}
		return nil
	case wire.OfClaim:
		of = claimTopic
	case wire.OfObject, wire.OfSnapshot:
	}
	if want := wire.Topic(p.Topic, of); want != log.Topic {
		return fmt.Errorf("it is in topic %s, but belongs in topic %s", log.Topic, want)
	}
	return nil
}

// name describes the message under a subject.
func (p place) name(subject string) string {
	if p.Records {
		return fmt.Sprintf("a record with the key %q", subject)
	}
	return fmt.Sprintf("a message on subject %q", subject)
}

// complaints are the problems of one message.
type complaints []string

func (c *complaints) add(format string, args ...any) { *c = append(*c, fmt.Sprintf(format, args...)) }

// check adds an error, unless it is nil.
func (c *complaints) check(what string, err error) {
	if err != nil {
		c.add("%s: %v", what, err)
	}
}

// checkKey compares the attribute partitionkey with the address of the message. of is "object" or
// "marker", for the complaint.
func (c *complaints) checkKey(m wire.Event, a wire.Address, of string) {
	key := m.Get("partitionkey")
	switch is, err := wire.ParseKey(key); {
	case err != nil:
		c.check("partitionkey", err)
	case is != a:
		c.add("partitionkey is %q, which names another %s", key, of)
	}
}

// text decodes an attribute that might be percent-encoded. If it can't decode the attribute, it adds
// a complaint and returns the attribute unchanged.
func (c *complaints) text(e wire.Event, name string) string {
	s, err := e.Text(name)
	c.check(name, err)
	if err != nil {
		return e.Get(name)
	}
	return strings.Clone(s) // a copy, which doesn't keep the rest of the message in memory
}

// read converts an object's event to an Event, without digests. An error means that the message
// isn't an event of an object.
func (p place) read(m wire.Event, a wire.Address, d publish.Delivery) (e Event, problems complaints, err error) {
	e = Event{
		Key: event.Key(a.Object), Position: d.Position, Stored: d.Stored, Whole: d.Whole,
		ID: strings.Clone(m.Get("id")), Type: wire.ObjectType(m.Get("type")), Truncated: m.Get("truncated") == "true",
		API: unique.Make(m.Get("apiversion")).Value(), // interned, because all events share a few values
	}
	if e.Type == "" {
		return e, nil, fmt.Errorf("unknown type %q", m.Get("type"))
	}
	e.UID, e.Version, e.Previous = problems.text(m, "uid"), problems.text(m, "resourceversion"), problems.text(m, "previousversion")
	if e.UID == "" {
		return e, nil, errors.New("no uid")
	}
	if !e.Type.Removes() && e.Version == "" {
		problems.add("no resourceversion")
	}
	if e.Repairs = repaired(m, e.Type); e.Repairs != 0 {
		e.Again = true
	} else {
		var want string
		if want, e.Again = wantID(m, e.Type); e.ID != want {
			problems.add("id is %q, want %q", e.ID, want)
		}
	}
	sequence, err := m.Text("sequence")
	if err != nil {
		return e, nil, err
	}
	s, err := wire.ParseSequence(sequence)
	if err != nil {
		return e, nil, err
	}
	if e.Epoch = s.Epoch; !s.Is(e.Version) {
		problems.add("sequence is %q, but resourceversion is %q", sequence, e.Version)
	}
	p.readContext(m, &problems)
	for _, flag := range []string{"truncated", "finalstateunknown"} {
		if v := m.Get(flag); v != "" && v != "true" {
			problems.add("%s is %q, want true or no value", flag, v)
		}
	}
	if cause := m.Get("cause"); cause != "watch" && cause != "snapshot" && cause != "reconcile" {
		problems.add("cause is %q, want watch, snapshot, or reconcile", cause)
	}
	if want := map[bool]string{true: "DEL"}[e.Type.Removes()]; !p.Records && m.Operation != want {
		problems.add("the header KV-Operation is %q, want %q", m.Operation, want)
	}
	p.readIdentity(m, a, &problems)
	return e, problems, nil
}

// readContext checks the attributes that every event has.
func (p place) readContext(m wire.Event, problems *complaints) {
	if want := "/kubernetes/" + url.PathEscape(p.Cluster); m.Get("source") != want {
		problems.add("source is %q, want %q", m.Get("source"), want)
	}
	if t := m.Get("datacontenttype"); t != "application/json" {
		problems.add("datacontenttype is %q, want application/json", t)
	}
	_, err := wire.Time(m.Get("time"))
	problems.check("time", err)
}

// wantID returns the id that an event must have. If the id ends with the position of the preceding
// event, wantID takes that position from the id itself. again reports whether an earlier event might
// have the same version.
func wantID(m wire.Event, t wire.Type) (want string, again bool) {
	id, uid, version := m.Get("id"), m.Get("uid"), m.Get("resourceversion")
	after := "0"
	if i := strings.LastIndexByte(id, '.'); i >= 0 {
		if n, err := strconv.ParseUint(id[i+1:], 10, 64); err == nil {
			after = strconv.FormatUint(n, 10)
		}
	}
	selected := uid + "." + version + ".selected." + after
	projected := uid + "." + version + ".projected." + after
	switch {
	case t == wire.Deleted:
		return uid + ".deleted", false
	case t == wire.Deselected:
		return uid + ".deselected." + after, false
	case id == selected && t != wire.Updated:
		return selected, true
	case id == projected && t == wire.Updated:
		return projected, true
	}
	return uid + "." + version, false
}

// repaired returns the position of the foreign event that an event repairs, or 0 if it repairs
// none.
func repaired(m wire.Event, t wire.Type) uint64 {
	state := m.Get("resourceversion")
	if t.Removes() {
		state = t.Short()
	}
	after, ok := strings.CutPrefix(m.Get("id"), m.Get("uid")+"."+state+".repaired.")
	n, err := strconv.ParseUint(after, 10, 64)
	if !ok || err != nil || strconv.FormatUint(n, 10) != after {
		return 0
	}
	return n
}

// readIdentity compares the identity in the attributes with the subject or key.
func (p place) readIdentity(m wire.Event, a wire.Address, problems *complaints) {
	problems.checkKey(m, a, "object")
	if got := problems.text(m, "name"); got != a.Object.Name {
		problems.add("name is %q, want %q", got, a.Object.Name)
	}
	if got := problems.text(m, "namespace"); got != a.Object.Namespace {
		problems.add("namespace is %q, want %q", got, a.Object.Namespace)
	}
	api := m.Get("apiversion")
	gv, err := schema.ParseGroupVersion(api)
	if err != nil || api != "" && gv.Group != a.Object.Group {
		problems.add("apiversion is %q, want a version of group %q", api, a.Object.Group)
	}
	if want := wire.Path(a.Object, gv.Version); m.Get("subject") != want {
		problems.add("the attribute subject is %q, want %q", m.Get("subject"), want)
	}
}

// readMarker returns the problems of a marker.
func (p place) readMarker(m wire.Event, a wire.Address) (problems complaints) {
	t := wire.Type(m.Get("type"))
	if !t.Marks(a.Kind) {
		problems.add("unknown type %q of a marker", t)
		return problems
	}
	p.readContext(m, &problems)
	problems.checkKey(m, a, "marker")
	problems.checkNames(m, a, t)
	switch a.Kind {
	case wire.OfSnapshot:
		s, err := wire.ParseSnapshot(m.Data)
		if err == nil && (s.Group != a.Object.Group || s.Resource != a.Object.Resource) {
			err = fmt.Errorf("it names group %q and resource %q, want %q and %q", s.Group, s.Resource, a.Object.Group, a.Object.Resource)
		}
		problems.check("the data", err)
	case wire.OfWriter:
		w, err := wire.ParseWriter(m.Data)
		if err == nil && (w.Topic != a.Topic || w.Partition != a.Partition) {
			err = fmt.Errorf("it names partition %d of topic %q, want %d of %q", w.Partition, w.Topic, a.Partition, a.Topic)
		}
		problems.check("the data", err)
	case wire.OfClaim:
		_, err := wire.ParseClaim(m.Data)
		problems.check("the data", err)
	case wire.OfResolved:
		of, err := wire.ParsePoint(m)
		if err == nil && (of.Group != a.Object.Group || of.Resource != a.Object.Resource) {
			err = fmt.Errorf("it names group %q and resource %q, want %q and %q", of.Group, of.Resource, a.Object.Group, a.Object.Resource)
		}
		problems.check("the consistency point", err)
	case wire.OfObject:
	}
	return problems
}

// checkNames compares the attributes id and subject of a marker with its address and its data. Only the
// forwarder knows the end of the id, and the version of the API in the subject.
func (c *complaints) checkNames(m wire.Event, a wire.Address, t wire.Type) {
	id, path := "", "/"
	switch a.Kind {
	case wire.OfClaim:
		id = "cluster.claimed."
		if claim, err := wire.ParseClaim(m.Data); err == nil {
			id += claim.UID + "."
		}
	case wire.OfWriter:
		id = "writer."
	default:
		segments := strings.Split(m.Get("subject"), "/")
		id, path = a.Object.Resource+"."+cmp.Or(a.Object.Group, "core")+"."+t.Short()+".", wire.Path(a.Object, segments[max(0, len(segments)-2)])
	}
	if got := c.text(m, "id"); !strings.HasPrefix(got, id) {
		c.add("id is %q, want one that begins with %q", got, id)
	}
	if got := m.Get("subject"); got != path {
		c.add("the attribute subject is %q, want %q", got, path)
	}
}

package verify

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// busEvent is one message of the stream as far as it is remembered.
type busEvent struct {
	Key      event.Key
	Position uint64
	Stored   time.Time

	ID       string
	Type     event.Type
	UID      string
	Version  string // resourceVersion
	Previous string // previousversion
	Epoch    uint16
	API      string // apiversion, in which the data is written

	Again     bool // the same version may be there before: deselected since, or projected in another way
	Truncated bool // only metadata is in the data
	Whole     bool // nothing is missing before it, see publish.Delivery

	// Content is that of the data less resourceVersion and generation, where a part of some
	// objects is sent, else zero: then another version is another state.
	Content digest

	// Digest is that of the data in normal form, of a truncated event that of its
	// metadata. It is zero where the data was not looked at: of a delete, and of an
	// event that was not the last of its object when reading began.
	Digest digest
}

// live tells whether the event shows its object as existing. The zero value, no
// event, does not.
func (e busEvent) live() bool { return e.UID != "" && !e.Type.Gone() }

// begins tells whether the event may be the first of a UID.
func (e busEvent) begins() bool { return e.Type == event.Created || e.Type == event.Snapshot }

// isVersion tells whether a resourceVersion can be ordered.
func isVersion(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// compareVersions orders two resourceVersions of one resource, which Kubernetes
// lets one do since 1.35 (KEP-5504); ok is false where one of them is no number.
func compareVersions(a, b string) (order int, ok bool) {
	if !isVersion(a) || !isVersion(b) {
		return 0, false
	}
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if len(a) != len(b) {
		return len(a) - len(b), true
	}
	return strings.Compare(a, b), true
}

// newer tells whether version a is known to be later than b.
func newer(a, b string) bool {
	order, ok := compareVersions(a, b)
	return ok && order > 0
}

// place is where the events of a cluster are to be found.
type place struct {
	Prefix, Cluster string
	Records         bool // on Kafka: what is filed under a subject has a key there
}

// subject is what an object's events are filed under.
func (p place) subject(cluster string, k event.Key) string {
	if p.Records {
		return event.PartitionKey(cluster, k)
	}
	return event.Subject(p.Prefix, cluster, k)
}

// key is the object whose subject it is, the zero value if it is none's.
func (p place) key(subject string) event.Key {
	var k event.Key
	var err error
	if p.Records {
		_, k, err = event.ParsePartitionKey(subject)
	} else {
		_, _, k, _, err = event.ParseSubject(subject)
	}
	if err != nil {
		return event.Key{}
	}
	return k
}

// name says what is filed under a subject.
func (p place) name(subject string) string {
	if p.Records {
		return fmt.Sprintf("a record with the key %q", subject)
	}
	return fmt.Sprintf("a message on subject %q", subject)
}

// read makes a busEvent of a message, its digest left out. The problems are what
// is wrong with the message by itself. An error means that it is no event of an
// object.
func (p place) read(m *event.Message, d publish.Delivery) (e busEvent, problems []string, err error) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	get := m.Attribute
	e = busEvent{
		Key: m.Key, Position: d.Position, Stored: d.Stored,
		ID: strings.Clone(m.ID), Type: knownType(get("type")),
		UID: plain(get("uid")), Version: plain(get("resourceversion")), Previous: plain(get("previousversion")),
		Truncated: get("truncated") == "true", Whole: d.Whole,
		API: unique.Make(get("apiversion")).Value(), // a few strings for all events
	}
	if e.Type == "" {
		return e, nil, fmt.Errorf("unknown type %q", get("type"))
	}
	if e.UID == "" {
		return e, nil, errors.New("no uid")
	}
	if !e.Type.Gone() && e.Version == "" {
		wrong("no resourceversion")
	}
	var want string
	if want, e.Again = wantID(get, e.Type, m.ID); m.ID != want {
		wrong("id is %q, should be %q", m.ID, want)
	}
	if e.Epoch, err = epoch(get("sequence")); err != nil {
		return e, nil, err
	}
	if want := sequence(e.Epoch, e.Version); plain(get("sequence")) != want {
		wrong("sequence is %q, should be %q", get("sequence"), want)
	}
	if want := "/kubernetes/" + url.PathEscape(p.Cluster); get("source") != want {
		wrong("source is %q, should be %q", get("source"), want)
	}
	p.readIdentity(get, e.Key, d.Subject, wrong)
	return e, problems, nil
}

// wantID is the id that an event should have. Where it ends with the position of the
// event before, that of id is taken, if it is one.
func wantID(get func(string) string, t event.Type, id string) (want string, again bool) {
	uid, version := get("uid"), get("resourceversion")
	after := "0"
	if i := strings.LastIndexByte(id, '.'); i >= 0 {
		if n, err := strconv.ParseUint(id[i+1:], 10, 64); err == nil {
			after = strconv.FormatUint(n, 10)
		}
	}
	selected := uid + "." + version + ".selected." + after
	projected := uid + "." + version + ".projected." + after
	switch {
	case t == event.Deleted:
		return uid + ".deleted", false
	case t == event.Deselected:
		return uid + ".deselected." + after, false
	case id == selected && t != event.Updated:
		return selected, true
	case id == projected && t == event.Updated:
		return projected, true
	}
	return uid + "." + version, false
}

// knownType is one of the five constants, so that no event keeps a string of its
// own, or "".
func knownType(s string) event.Type {
	for _, t := range [...]event.Type{event.Created, event.Updated, event.Deleted, event.Snapshot, event.Deselected} {
		if s == string(t) {
			return t
		}
	}
	return ""
}

// readIdentity compares what an event says of whose it is with the subject that
// it came on.
func (p place) readIdentity(get func(string) string, k event.Key, subject string, wrong func(string, ...any)) {
	cluster, key, err := event.ParsePartitionKey(get("partitionkey"))
	if err != nil {
		wrong("partitionkey is %q, which is no object's", get("partitionkey"))
	} else if want := p.subject(cluster, key); want != subject && p.Records {
		wrong("partitionkey is %q, the record's key %q", want, subject)
	} else if want != subject {
		wrong("partitionkey %q belongs to subject %q", get("partitionkey"), want)
	}
	if got := plain(get("name")); got != k.Name {
		wrong("name is %q", got)
	}
	if got := plain(get("namespace")); got != k.Namespace {
		wrong("namespace is %q", got)
	}
	gv, err := schema.ParseGroupVersion(get("apiversion"))
	if err != nil || get("apiversion") != "" && gv.Group != k.Group {
		wrong("apiversion is %q", get("apiversion"))
	}
	path := event.Resource{Group: k.Group, Version: gv.Version, Resource: k.Resource}.Path(k)
	if got := get("subject"); got != path {
		wrong("the attribute subject is %q, should be %q", got, path)
	}
}

// plain undoes the percent-encoding of what a CloudEvents string may not hold.
func plain(s string) string {
	if !strings.Contains(s, "%") {
		return strings.Clone(s)
	}
	if decoded, err := url.PathUnescape(s); err == nil {
		return decoded
	}
	return strings.Clone(s)
}

// epoch reads the first part of the attribute sequence.
func epoch(sequence string) (uint16, error) {
	digits, _, ok := strings.Cut(sequence, ".")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil || len(digits) < 4 {
		return 0, fmt.Errorf("sequence %q does not begin with an epoch", sequence)
	}
	return uint16(n), nil
}

// sequence is what the attribute should be.
func sequence(epoch uint16, version string) string {
	const digits = 20
	if isVersion(version) {
		version = strings.Repeat("0", max(0, digits-len(version))) + version
	}
	return fmt.Sprintf("%04d.%s", epoch, version)
}

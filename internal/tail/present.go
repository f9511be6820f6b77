package tail

import (
	"cmp"
	"context"
	encoded "encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json" // encoding/json ignores the case of names

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// Present is the current state of the bus: the last event of each object that the filter selects.
// Set the fields, call [Present.Read] once, and then call the other methods.
type Present struct {
	Filter Filter
	Labels labels.Selector // only objects with these labels
	Whole  bool            // keep the content of the objects, compressed
	Status *Status

	Reading *longwork.Counter // counts the messages that Read reads from the bus; can be nil

	// Newest is when the bus stored the newest object state, snapshot marker, or consistency point
	// that Read found; zero if there is none. Only a forwarder that watches its cluster writes these
	// events.
	Newest time.Time

	objects map[place]Object
	hidden  map[string]error // why the last message of a subject or record key is not the state of an object
	sources map[source]*progress
	unseen  []Selector
	packer  *event.Packer
}

// Object is the last event of an object.
type Object struct {
	Cluster string
	Key     event.Key
	Kind    string
	Version string    // resourceVersion
	Created time.Time // creationTimestamp; zero if unknown
	Changed time.Time // when the forwarder observed the last change

	UID    string
	Type   event.Type       // type of the event
	Stored publish.Delivery // where and when the bus stored the event

	Removed   event.Type // Deleted or Deselected; "" for an object that exists
	Truncated bool       // the bus has only apiVersion, kind, and metadata

	body event.Body
}

// source is a resource of a cluster. Each consistency point or snapshot marker is about one source.
type source struct {
	cluster  string
	resource schema.GroupResource
}

// progress records the markers of a source, and the logs that have its events.
type progress struct {
	marker event.Type                // type of the last snapshot marker; "" if there is none
	points map[publish.Log]time.Time // time of the last consistency point in each log
	logs   map[publish.Log]bool      // logs that have an event of an object
}

// Freshness describes how current the objects of a resource are.
type Freshness struct {
	Cluster  string
	Resource schema.GroupResource
	AsOf     time.Time // time of the last consistency point; zero if a log with objects has no point
	Syncing  bool      // the first sync is not complete: objects can be missing
}

// Read reads the bus up to its current end. It does not wait for a bus that is missing or
// unreachable.
func (p *Present) Read(ctx context.Context, bus Bus, subjectPrefix string) error {
	p.Filter.Points, p.Filter.Markers = true, true
	p.objects, p.hidden, p.sources = map[place]Object{}, map[string]error{}, map[source]*progress{}
	p.unseen, p.packer = slices.Clone(p.Filter.Resources), event.NewPacker()
	p.Reading.Begin()
	defer p.Reading.End()
	return readToEnd(ctx, bus, publish.SubscribeOptions{
		Filters: p.Filter.Subjects(subjectPrefix), From: publish.FromLast, UntilLost: true,
		Notify: p.Status.notify, Foreign: p.foreign, Tombstone: p.tombstone,
	}, p.take)
}

func (p *Present) take(m *event.Message, d publish.Delivery) error {
	e := Event{Delivery: d, Message: m}
	if len(p.Filter.Clusters) == 0 || slices.Contains(p.Filter.Clusters, d.Cluster) {
		p.unseen = slices.DeleteFunc(p.unseen, func(s Selector) bool { return s.match(m) })
	}
	if !p.Filter.Match(e) {
		return nil
	}
	if isAlive := m.Key.Resource != "" && !event.Type(m.Attribute("type")).IsRemoval(); isAlive && d.Stored.After(p.Newest) {
		p.Newest = d.Stored
	}
	from := source{d.Cluster, m.Key.GroupResource()}
	if p.sources[from] == nil {
		p.sources[from] = &progress{points: map[publish.Log]time.Time{}, logs: map[publish.Log]bool{}}
	}
	if m.Marker {
		p.sources[from].add(e)
		return nil
	}
	p.sources[from].logs[d.Log] = true
	at := place{d.Cluster, m.Key}
	delete(p.objects, at)
	delete(p.hidden, d.Subject)
	o, set, data, err := objectOf(e)
	switch {
	case err != nil:
		p.hidden[d.Subject] = err
	case o.Removed != "":
		if len(p.Filter.Names) > 0 { // so that the caller can say why a name is not found
			p.objects[at] = o
		}
	case p.Labels.Matches(set):
		if p.Whole {
			o.body = p.packer.Pack(data)
		}
		p.objects[at] = o
	}
	return nil
}

func (p *progress) add(e Event) {
	if !e.Message.IsResolved() {
		p.marker = event.Type(e.Message.Attribute("type"))
		return
	}
	if asOf, err := time.Parse(time.RFC3339Nano, e.Message.Attribute("time")); err == nil {
		p.points[e.Log] = asOf
	}
}

// objectOf parses the event of an object, and also returns the labels and the JSON of the object.
// data is valid as long as the message is.
func objectOf(e Event) (o Object, set labels.Set, data []byte, err error) {
	m := e.Message
	acked, err := event.AckedFrom(m.Attribute)
	if err != nil {
		return Object{}, nil, nil, err
	}
	o = Object{
		Cluster: e.Cluster, Key: m.Key, Kind: m.Attribute("kind"), Version: acked.ResourceVersion, Changed: e.Stored,
		Truncated: m.Attribute("truncated") == "true", UID: acked.UID, Type: event.Type(m.Attribute("type")), Stored: e.Delivery,
	}
	if at, err := time.Parse(time.RFC3339Nano, m.Attribute("time")); err == nil {
		o.Changed = at
	}
	if acked.Deleted {
		o.Removed = event.Type(m.Attribute("type"))
		return o, nil, nil, nil
	}
	if data, err = event.ObjectIn(m.Attribute, m.Data); err != nil {
		return Object{}, nil, nil, err
	}
	var content struct {
		Metadata struct {
			Name              string             `json:"name"`
			Namespace         string             `json:"namespace"`
			CreationTimestamp encoded.RawMessage `json:"creationTimestamp"`
			Labels            encoded.RawMessage `json:"labels"`
		} `json:"metadata"`
	}
	switch err := json.Unmarshal(data, &content); {
	case err != nil:
		return Object{}, nil, nil, errors.New("the data of the message is not a Kubernetes object")
	case content.Metadata.Name != m.Key.Name || content.Metadata.Namespace != m.Key.Namespace:
		return Object{}, nil, nil, errors.New("the data of the message is a different object")
	}
	// A hashed field is a string, whatever its type, so the object can lack a time or labels.
	_ = json.Unmarshal(content.Metadata.CreationTimestamp, &o.Created)
	_ = json.Unmarshal(content.Metadata.Labels, &set)
	return o, set, data, nil
}

// foreign handles a message that is not an event. The message hides the earlier state of its object
// until the next event of the object.
func (p *Present) foreign(d publish.Delivery, err error) {
	cluster, k, ok := d.Object()
	if ok && p.Filter.Match(Event{Delivery: publish.Delivery{Cluster: cluster}, Message: &event.Message{Key: k}}) {
		delete(p.objects, place{cluster, k})
		p.hidden[d.Subject] = err
	}
}

// tombstone handles a record without a value, which means that the bus no longer has an event of the
// object.
func (p *Present) tombstone(k event.Key, d publish.Delivery) {
	delete(p.hidden, d.Subject)
	if at := (place{d.Cluster, k}); p.objects[at].Removed == "" {
		delete(p.objects, at)
	}
}

// Objects returns the objects, sorted by cluster, resource, namespace, and name. If the filter has
// names, Objects also returns the removed objects with these names.
func (p *Present) Objects() (objects, removed []Object) {
	all := slices.SortedFunc(maps.Values(p.objects), func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), compareResources(a.Key.GroupResource(), b.Key.GroupResource()),
			cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	for _, o := range all {
		if o.Removed != "" {
			removed = append(removed, o)
		} else {
			objects = append(objects, o)
		}
	}
	return objects, removed
}

func compareResources(a, b schema.GroupResource) int {
	return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Group, b.Group))
}

// Freshness returns how current the objects of each resource are, sorted by cluster and resource.
func (p *Present) Freshness() []Freshness {
	var all []Freshness
	for from, is := range p.sources {
		f := Freshness{Cluster: from.cluster, Resource: from.resource, Syncing: is.marker == event.SnapshotStarted}
		for _, asOf := range is.points { // each point covers only its own log
			if f.AsOf.IsZero() || asOf.Before(f.AsOf) {
				f.AsOf = asOf
			}
		}
		for log := range is.logs {
			if is.points[log].IsZero() {
				f.AsOf = time.Time{} // no point covers this log
			}
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Freshness) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), compareResources(a.Resource, b.Resource))
	})
	return all
}

// Unseen returns a filter for the resources for which Read found no event. Pass it to [FindAbsent].
func (p *Present) Unseen() Filter {
	return Filter{Clusters: p.Filter.Clusters, Resources: p.unseen}
}

// Err returns an error if the last message of an object is not a state of that object.
func (p *Present) Err() error {
	var all []error
	for _, subject := range slices.Sorted(maps.Keys(p.hidden)) {
		all = append(all, fmt.Errorf("the last message of %s is not the state of an object: %w", show(subject), p.hidden[subject]))
	}
	return errors.Join(all...)
}

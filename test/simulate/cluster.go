package simulate

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
)

var resource = event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}

const namespace = "ns"

func keyOf(object int) event.Key { return resource.Key(namespace, objectNames[object]) }

func objectOf(k event.Key) int { return slices.Index(objectNames[:], k.Name) }

// objectOfKey returns the object with a partition key, or none if no object has that key.
func objectOfKey(partitionKey string) int {
	if _, k, err := event.ParsePartitionKey(partitionKey); err == nil {
		return objectOf(k)
	}
	return none
}

// state is a state of an object in the cluster. The zero value means that the object doesn't exist.
type state struct {
	uid     int
	version uint64
	spec    int
	noise   int // a field that a projection drops
	label   bool
}

func (s state) exists() bool { return s.uid != 0 }

// change is an entry in the history of etcd.
type change struct {
	version       uint64
	object        int
	before, after state
}

// cluster is the model of etcd and its API server.
type cluster struct {
	version  uint64
	objects  [len(objectNames)]state
	history  []change
	spaces   []spaceChange // the history of the namespace
	role     bool          // the namespace has a Role that lets a forwarder read the objects
	content  int           // the default value, which is part of every object
	life     int           // number of restores of etcd
	forgot   uint64        // a watch can't resume at an earlier version
	backup   *backup
	uids     int
	contents int
}

type backup struct {
	version uint64
	objects [len(objectNames)]state
	history []change
}

// put changes an object, or deletes it if s is the zero state.
func (c *cluster) put(object int, s state) state {
	c.version++
	before := c.objects[object]
	if s.exists() {
		s.version = c.version
	}
	c.objects[object] = s
	c.history = append(c.history, change{c.version, object, before, s})
	return s
}

func (c *cluster) backUp() {
	c.backup = &backup{c.version, c.objects, slices.Clone(c.history)}
}

func (c *cluster) restore() {
	b := c.backup
	c.version, c.objects, c.history = b.version, b.objects, slices.Clone(b.history)
	c.life++
}

// at returns the objects at a version.
func (c *cluster) at(version uint64) (objects [len(objectNames)]state) {
	for _, h := range c.history {
		if h.version > version {
			break
		}
		objects[h.object] = h.after
	}
	return objects
}

// after returns the first change after a version.
func (c *cluster) after(version uint64) (change, bool) {
	n, _ := slices.BinarySearchFunc(c.history, version+1, func(h change, v uint64) int {
		return int(int64(h.version) - int64(v))
	})
	if n == len(c.history) {
		return change{}, false
	}
	return c.history[n], true
}

// uidOf returns the UID for a number.
func uidOf(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func numberOf(uid string) int {
	n, _ := strconv.Atoi(uid[max(0, len(uid)-12):])
	return n
}

// form determines how a forwarder publishes objects.
type form struct {
	project bool // the projection drops the field noise
}

// render returns the object that an informer caches for a state.
func render(object int, s state, content int, f form) *event.Object {
	noise := ""
	if !f.project {
		noise = fmt.Sprintf(`,"noise":"%d"`, s.noise)
	}
	text := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d","labels":{"on":"%t"}},"data":{"default":"%d","spec":"%d"%s}}`,
		objectNames[object], namespace, uidOf(s.uid), s.version, s.label, content, s.spec, noise)
	o := &event.Object{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: objectNames[object],
		UID: types.UID(uidOf(s.uid)), ResourceVersion: strconv.FormatUint(s.version, 10),
		Body: event.JSON(text), Shaped: true,
	}
	if f.project {
		o.Digest, _ = decode.DigestOf(o.Body)
	} else {
		binary.BigEndian.PutUint64(o.Digest[:], max(1, xxhash.Sum64(text)))
	}
	return o
}

package verify

import (
	"context"
	"encoding/json"

	"golang.org/x/sync/errgroup"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/verify/normal"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// sighting is the state of one key in the cluster.
type sighting struct {
	present bool
	left    bool // the object exists, but its content is not selected, so present is false
	uid     string
	version string // version of the object, or of the list if the object is absent; "" if the resource is not served
	asOf    string // the version of the list; "" if the resource is not served
	api     string // the API version in which it was read
	whole   normal.Digest
	partial normal.Digest // digest of the metadata alone

	// Digests of an object that is published in part. They leave out resourceVersion and
	// generation, because the object's event might have an earlier version.
	projected            bool
	content, contentPart normal.Digest
	tree                 tree // the object in the form of the bus; only lookOne sets it
}

// tree is a JSON object. Numbers keep their text.
type tree = wire.Tree

// item is one object of a list, as the API server returns it.
type item struct {
	key     event.Key
	uid     string
	version string
	tree    tree
}

// readItem reads the next item of a list.
func readItem(r resource, d *json.Decoder) (item, error) {
	var raw json.RawMessage
	err := d.Decode(&raw)
	if err != nil {
		return item{}, err
	}
	t, err := wire.ParseTree(raw)
	if err != nil {
		return item{}, err
	}
	metadata, _ := t["metadata"].(tree)
	get := func(field string) string {
		s, _ := metadata[field].(string)
		return s
	}
	i := item{uid: get("uid"), version: get("resourceVersion"), tree: t}
	i.key = event.Key{Group: r.Group, Resource: r.Resource, Namespace: get("namespace"), Name: get("name")}
	return i, nil
}

// see returns the sighting of an item, and modifies the tree of the item. An object whose content
// is not selected counts as absent.
func (c *cluster) see(r resource, i item) sighting {
	if !c.selectsContent(r, i.tree) {
		return sighting{left: true, uid: i.uid}
	}
	shape := c.shapeOf(r)
	var project normal.Project
	if shape.Project != nil {
		project = func(t wire.Tree, hash func([]string, any) any) { shape.Project(t, hash) }
	}
	c.form.OfCluster(r.GroupResource().String(), i.tree, project)
	s := sighting{present: true, uid: i.uid, version: i.version, api: r.GroupVersion().String(), tree: i.tree}
	if shape.Drops {
		s.projected, s.content, s.contentPart = true, normal.ContentOf(i.tree), normal.ContentOf(normal.MetadataOnly(i.tree))
	}
	s.whole, s.partial = normal.DigestOf(i.tree), normal.DigestOf(normal.MetadataOnly(i.tree))
	return s
}

// selectsContent strips an object as [normal.Form.Strip] does, and reports whether the settings
// select it by its content.
func (c *cluster) selectsContent(r resource, t tree) bool {
	c.form.Strip(r.GroupVersion().String(), r.Kind, t)
	shape := c.shapeOf(r)
	if shape.None || shape.Select == nil {
		return !shape.None
	}
	selected, _ := shape.Select(c.form.AsSelected(r.GroupResource().String(), t)) // Select also returns true if it fails
	return selected
}

func (c *cluster) shapeOf(r resource) decode.Shape {
	if c.shape == nil {
		return decode.Shape{}
	}
	return c.shape(event.Resource{Group: r.Group, Version: r.Version, Resource: r.Resource, Kind: r.Kind, Namespaced: r.Namespaced})
}

// look reads the objects of one resource with these keys. The result has a sighting for each key,
// including keys without an object.
func (c *cluster) look(ctx context.Context, r resource, keys []event.Key, as view) (map[event.Key]sighting, error) {
	if len(keys) > maxSingleReads {
		return c.lookAll(ctx, r, keys, as)
	}
	seen := make([]sighting, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrent)
	for n, k := range keys {
		group.Go(func() (err error) {
			seen[n], err = c.lookOne(ctx, r, k, as)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	found := map[event.Key]sighting{}
	for n, k := range keys {
		seen[n].tree = nil
		found[k] = seen[n]
	}
	return found, nil
}

func (c *cluster) lookAll(ctx context.Context, r resource, keys []event.Key, as view) (map[event.Key]sighting, error) {
	found := map[event.Key]sighting{}
	begin := func() {
		for _, k := range keys {
			found[k] = sighting{}
		}
	}
	version, err := c.listAll(ctx, r, as, begin, func(i item) error {
		if _, wanted := found[i.key]; wanted {
			s := c.see(r, i)
			s.tree = nil
			found[i.key] = s
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for k, s := range found {
		found[k] = s.in(version)
	}
	return found, nil
}

// in returns the sighting as of a list at the given version.
func (s sighting) in(version string) sighting {
	s.asOf = version
	if !s.present {
		s.version = version
	}
	return s
}

// lookOne lists one object. Unlike a get, a list respects the selectors and has a
// resourceVersion even if there is no object.
func (c *cluster) lookOne(ctx context.Context, r resource, k event.Key, as view) (sighting, error) {
	var seen sighting
	version, err := c.list(ctx, r, c.scope(k.Namespace, k.Name, as), func(i item) error {
		if i.key == k {
			seen = c.see(r, i)
		}
		return nil
	})
	if err != nil {
		return sighting{}, err
	}
	return seen.in(version), nil
}

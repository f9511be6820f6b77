package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// op is a change of the cluster. An operation that writes data creates the object if it doesn't
// exist.
type op struct {
	do     opVerb
	target target
	value  int
}

type opVerb string

const (
	put        opVerb = "put"   // create, or change the data
	burst      opVerb = "burst" // change the data many times
	big        opVerb = "big"   // put with much data
	remove     opVerb = "delete"
	recreate   opVerb = "replace" // delete and create
	deselect   opVerb = "unlabel" // remove the label of the selector
	reselect   opVerb = "label"   // add the label of the selector
	hold       opVerb = "hold"    // add a finalizer, and delete
	release    opVerb = "release" // remove the finalizers
	fresh      opVerb = "fresh"   // create with a new name
	noise      opVerb = "noise"   // change a field that the projection drops
	hide       opVerb = "hide"    // make the filter exclude the object
	show       opVerb = "show"    // make the filter select the object
	pin        opVerb = "pin"     // add a finalizer
	removeAll  opVerb = "delete-namespace"
	createHome opVerb = "create-namespace"
)

// target is the object of an operation.
type target struct {
	resource  string // a key of resources
	namespace string // "a" or "b", "" if cluster-scoped
	name      string
}

// key returns the object's name in the cluster.
func (u *user) key(t target) string {
	if t.namespace == "" {
		return u.home + t.name
	}
	return t.name
}

func (o op) String() string {
	text := string(o.do) + " " + o.target.resource
	if o.target.namespace != "" {
		text += " " + o.target.namespace
	}
	if o.target.name != "" {
		text += "/" + o.target.name
	}
	return text
}

// The resources of the workload. The API server serves the custom resources while their definition
// exists.
const (
	configMaps = "configmaps"
	widgets    = "widgets"
	planets    = "planets"
	namespaces = "namespaces"
)

// objectKinds are the kinds of these resources.
var objectKinds = map[string]string{
	configMaps: "ConfigMap", widgets: "Widget", planets: "Planet", moons: "Moon", flunders: "Flunder", revisions: "ControllerRevision",
}

// op draws an operation. A calm operation only creates and deletes objects.
func (g *generator) op(calm bool) op {
	if g.plan.settings.byTeam && !calm && g.IntN(12) == 0 {
		return g.teamOp()
	}
	o := op{value: g.IntN(1_000_000)}
	switch n := g.IntN(100); {
	case g.plan.settings.moons && n%4 == 0:
		o.target = target{moons, g.namespace(), fmt.Sprintf("m%d", g.IntN(4))}
	case n < 60:
		o.target = target{configMaps, g.namespace(), fmt.Sprintf("c%d", g.IntN(5))}
	case n < 85:
		o.target = target{widgets, g.namespace(), fmt.Sprintf("w%d", g.IntN(4))}
	default:
		o.target = target{planets, "", fmt.Sprintf("p%d", g.IntN(3))}
	}
	if calm {
		o.do = []opVerb{recreate, remove, fresh, fresh}[g.IntN(4)]
	} else {
		o.do = g.opVerb()
	}
	if g.plan.settings.shaped && !calm && g.shapes.IntN(4) == 0 {
		o.do = []opVerb{noise, noise, hide, show}[g.shapes.IntN(4)]
	}
	if o.do == fresh {
		o.target.name = fmt.Sprintf("f%d", o.value)
	}
	return o
}

func (g *generator) opVerb() opVerb {
	n := g.IntN(100)
	for _, w := range []struct {
		do     opVerb
		weight int
	}{{put, 34}, {burst, 6}, {big, 2}, {remove, 15}, {recreate, 17}, {deselect, 6}, {reselect, 6}, {hold, 5}, {release, 6}} {
		if n < w.weight {
			return w.do
		}
		n -= w.weight
	}
	return fresh
}

func (g *generator) namespace() string { return []string{"a", "b"}[g.IntN(2)] }

// user changes the cluster like many people with kubectl.
type user struct {
	client dynamic.Interface
	home   string // prefix of the names of cluster-scoped objects
	crowd  int    // number of crowd namespaces with the team's label

	hurry   atomic.Bool  // the API server doesn't respond, so waiting is useless
	done    atomic.Int64 // finished operations of the phase
	changes atomic.Int64 // accepted by the API server

	mu       sync.Mutex
	states   map[string][]byte // states that the API server returned, by uid and resourceVersion
	teams    labelings
	versions map[string]string // API versions of custom resources, if not v1
	changed  map[string]bool   // custom resources with a changed definition

	unlabeled map[string]bool // UIDs of objects that lost the label, or partitionkeys if the response was lost
	remodeled map[string]bool // resources whose objects may change content without a new version
	orphaned  map[string]bool // resources that may not be served while etcd still has their objects
}

// lanes is the number of concurrent operations. Operations on the same object run in the same
// lane, one after the other.
const lanes = 4

// opTimeout limits a request, because the API server may hang. hurriedTimeout limits it while the
// API server is known to hang. opTimeout allows for the 2 s by which the API server delays the first
// objects of a new definition.
const (
	opTimeout      = 10 * time.Second
	hurriedTimeout = 200 * time.Millisecond
)

const (
	group         = "torture.example.com" // of the custom resources
	selectedLabel = "torture"
	finalizer     = group + "/hold"
)

func newUser(config *rest.Config, home string) (*user, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	return &user{client: client, home: home, states: map[string][]byte{}, versions: map[string]string{},
		changed: map[string]bool{}, unlabeled: map[string]bool{}, remodeled: map[string]bool{}, orphaned: map[string]bool{}}, err
}

// run executes a batch of operations and returns when it is done. It ignores failed operations,
// because the API server may be down.
func (u *user) run(ctx context.Context, ops []op) {
	u.done.Store(0)
	var queues [lanes][]op
	for _, o := range ops {
		h := fnv.New32a()
		fmt.Fprint(h, o.target)
		n := h.Sum32() % lanes
		queues[n] = append(queues[n], o)
	}
	var running sync.WaitGroup
	for _, queue := range queues {
		running.Go(func() {
			for _, o := range queue {
				_ = u.do(ctx, o)
				u.done.Add(1)
			}
		})
	}
	running.Wait()
}

func (u *user) do(ctx context.Context, o op) error {
	timeout := opTimeout
	if u.hurry.Load() {
		timeout = hurriedTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch o.do {
	case put, fresh:
		return u.put(ctx, o.target, o.value, 0)
	case big:
		size := 200_000
		if o.target.resource != configMaps {
			size = 1_100_000 // more than the bus accepts
		}
		return u.put(ctx, o.target, o.value, size)
	case burst:
		for n := range 8 {
			if err := u.put(ctx, o.target, o.value+n, 0); err != nil {
				return err
			}
		}
		return nil
	case noise:
		return u.patchWith(ctx, o.target, map[string]any{"data": map[string]any{"noise": fmt.Sprint(o.value)}})
	case hide:
		return u.patchWith(ctx, o.target, map[string]any{"data": map[string]any{"hidden": "yes"}})
	case show:
		return u.patchWith(ctx, o.target, map[string]any{"data": map[string]any{"hidden": nil}})
	case remove:
		return u.remove(ctx, o.target)
	case recreate:
		if err := u.remove(ctx, o.target); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return u.create(ctx, o.target, o.value, 0)
	case deselect:
		return u.unlabel(ctx, o.target)
	case reselect:
		return u.patch(ctx, o.target, map[string]any{"labels": map[string]any{selectedLabel: "yes"}})
	case hold:
		if err := u.patch(ctx, o.target, map[string]any{"finalizers": []string{finalizer}}); err != nil {
			return err
		}
		return u.remove(ctx, o.target)
	case pin:
		if err := u.put(ctx, o.target, o.value, 0); err != nil {
			return err
		}
		return u.patch(ctx, o.target, map[string]any{"finalizers": []string{finalizer}})
	case release:
		// Don't record this state: if the patch completes a delete, the API server returns the
		// version before it.
		client, _ := u.of(o.target)
		_, err := client.Patch(ctx, u.key(o.target), types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
		return err
	case undefine:
		return u.client.Resource(definitions).Delete(ctx, o.target.resource+"."+group, metav1.DeleteOptions{})
	case define:
		return u.define(ctx, o.target.resource)
	case unblock:
		return u.unblock(ctx, o.target.resource)
	case giveDefault, giveOther, prune, takeSchema:
		return u.remodel(ctx, o.target.resource, o.do)
	case serveBoth, serveNew, serveOld:
		return u.serve(ctx, o.target.resource, o.do)
	case removeAll:
		return u.client.Resource(core(namespaces)).Delete(ctx, u.home+o.target.name, metav1.DeleteOptions{})
	case createHome, stranger:
		return u.createNamespace(ctx, o.target.name, o.do == createHome)
	case leaveTeam, joinTeam, scatter, gather:
		return u.doToTeam(ctx, o)
	}
	return fmt.Errorf("unknown operation %q", o.do)
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func core(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: name}
}

func (u *user) resource(name string) schema.GroupVersionResource {
	if name == configMaps || name == namespaces {
		return core(name)
	}
	if of, ok := others[name]; ok {
		return of
	}
	return schema.GroupVersionResource{Group: group, Version: u.version(name), Resource: name}
}

func (u *user) of(t target) (client dynamic.ResourceInterface, kind string) {
	kind = objectKinds[t.resource]
	r := u.client.Resource(u.resource(t.resource))
	if t.namespace == "" {
		return r, kind
	}
	return r.Namespace(u.home + t.namespace), kind
}

func (u *user) put(ctx context.Context, t target, value, size int) error {
	client, _ := u.of(t)
	patch, err := json.Marshal(u.content(t, value, size))
	if err != nil {
		return err
	}
	o, err := client.Patch(ctx, u.key(t), types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return u.create(ctx, t, value, size)
	}
	return u.note(o, err)
}

// content returns the content that put writes.
func (u *user) content(t target, value, size int) map[string]any {
	if _, ok := others[t.resource]; ok {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{"value": fmt.Sprint(value)}}}
	}
	return map[string]any{"data": data(value, size)}
}

func data(value, size int) map[string]any {
	d := map[string]any{"value": fmt.Sprint(value), "also": "pruned by some schemas", "more": nil}
	if size > 0 {
		d["more"] = strings.Repeat(fmt.Sprint(value%10), size)
	}
	return d
}

func (u *user) create(ctx context.Context, t target, value, size int) error {
	client, _ := u.of(t)
	d := data(value, size)
	if size == 0 {
		delete(d, "more")
	}
	o := u.object(t, d)
	if _, ok := others[t.resource]; ok {
		delete(o.Object, "data")
		otherContent(o, value)
	}
	if value%5 > 0 {
		o.SetLabels(map[string]string{selectedLabel: "yes"})
	}
	return u.note(client.Create(ctx, o, metav1.CreateOptions{}))
}

func (u *user) object(t target, data map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"data": data}}
	o.SetAPIVersion(u.resource(t.resource).GroupVersion().String())
	_, kind := u.of(t)
	o.SetKind(kind)
	o.SetName(u.key(t))
	return o
}

func (u *user) patch(ctx context.Context, t target, metadata map[string]any) error {
	_, err := u.patchAs(ctx, t, u.key(t), metadata)
	return err
}

// unlabel removes the label of the selector.
func (u *user) unlabel(ctx context.Context, t target) error {
	o, err := u.patchAs(ctx, t, u.key(t), map[string]any{"labels": map[string]any{selectedLabel: nil}})
	home := t.namespace
	if home != "" {
		home = u.home + home
	}
	key := u.partitionKey(t.resource, home, u.key(t))
	u.mu.Lock()
	defer u.mu.Unlock()
	if o != nil {
		u.unlabeled[string(o.GetUID())] = true
	} else if isDown(err) {
		u.unlabeled[key] = true
	}
	return err
}

// wasUnlabeled reports whether an object is known to have lost the label.
func (u *user) wasUnlabeled(partitionKey, uid string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.unlabeled[uid] || u.unlabeled[partitionKey]
}

func (u *user) patchWith(ctx context.Context, t target, what map[string]any) error {
	client, _ := u.of(t)
	patch, err := json.Marshal(what)
	if err != nil {
		return err
	}
	o, err := client.Patch(ctx, u.key(t), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && isHidden(what) { // the API server may have applied the change, for example if it was frozen
		home := ""
		if t.namespace != "" {
			home = u.home + t.namespace
		}
		maybeHidden.Store(home+"/"+u.key(t), true)
	}
	return u.note(o, err)
}

func (u *user) patchAs(ctx context.Context, t target, name string, metadata map[string]any) (*unstructured.Unstructured, error) {
	client, _ := u.of(t)
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, err
	}
	o, err := client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return o, u.note(o, err)
}

func (u *user) remove(ctx context.Context, t target) error {
	client, _ := u.of(t)
	err := client.Delete(ctx, u.key(t), metav1.DeleteOptions{})
	if err == nil {
		u.changes.Add(1)
	}
	return err
}

// note records a state that the API server returned.
func (u *user) note(o *unstructured.Unstructured, err error) error {
	if err != nil {
		return err
	}
	u.changes.Add(1)
	text, err := json.Marshal(published(o))
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.states[string(o.GetUID())+"."+o.GetResourceVersion()] = text
	if isHidden(o.Object) {
		hidden.Store(string(o.GetUID()), true)
	}
	return nil
}

// published returns the data of an event of o: the object without the fields that are never
// published.
func published(o *unstructured.Unstructured) map[string]any {
	c := o.DeepCopy()
	unstructured.RemoveNestedField(c.Object, "metadata", "managedFields")
	return c.Object
}

func (u *user) createNamespace(ctx context.Context, name string, selected bool) error {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion("v1")
	o.SetKind("Namespace")
	o.SetName(u.home + name)
	labels := map[string]string{selectedLabel: "yes"}
	if selected {
		labels[teamLabel] = u.team()
	}
	o.SetLabels(labels)
	created, err := u.client.Resource(core(namespaces)).Create(ctx, o, metav1.CreateOptions{})
	u.noteTeam(u.home+name, created, err)
	return u.note(created, err)
}

// served returns nil once objects of a custom resource can be created.
func (u *user) served(ctx context.Context, name string) error {
	t := target{resource: name, name: "none"}
	if name != planets {
		t.namespace = "a"
	}
	client, _ := u.of(t)
	_, err := client.Create(ctx, u.object(t, map[string]any{}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// isDown reports whether an error means that the API server can't serve requests.
func isDown(err error) bool {
	var status apierrors.APIStatus
	return err != nil && (!errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError)
}

// state returns the state that the API server returned for an object in a version.
func (u *user) state(uid, version string) (state map[string]any, known bool) {
	u.mu.Lock()
	text, known := u.states[uid+"."+version]
	u.mu.Unlock()
	if !known {
		return nil, false
	}
	return state, json.Unmarshal(text, &state) == nil
}

// leave deletes the user's remaining objects and removes their finalizers.
func (u *user) leave(ctx context.Context) error {
	var all error
	for _, name := range slices.Concat([]string{configMaps}, customResources) {
		items, err := u.list(ctx, name)
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		for _, o := range items {
			if !strings.HasPrefix(o.GetNamespace()+o.GetName(), u.home) {
				continue
			}
			t := u.target(name, o)
			if t.namespace == "" {
				_ = u.remove(ctx, t)
			}
			all = errors.Join(all, u.releaseOne(ctx, t, o))
		}
	}
	return all
}

// target is the inverse of key.
func (u *user) target(resource string, o unstructured.Unstructured) target {
	t := target{resource, strings.TrimPrefix(o.GetNamespace(), u.home), o.GetName()}
	if t.namespace == "" {
		t.name = strings.TrimPrefix(t.name, u.home)
	}
	return t
}

// releaseAll removes the finalizers of all objects in a namespace of the cluster.
func (u *user) releaseAll(ctx context.Context, home string) error {
	var all error
	for _, name := range slices.Concat([]string{configMaps}, customResources) {
		items, err := u.list(ctx, name)
		all = errors.Join(all, err)
		for _, o := range items {
			if o.GetNamespace() == home {
				all = errors.Join(all, u.releaseOne(ctx, u.target(name, o), o))
			}
		}
	}
	return all
}

func (u *user) releaseOne(ctx context.Context, t target, o unstructured.Unstructured) error {
	if len(o.GetFinalizers()) == 0 {
		return nil
	}
	if err := u.do(ctx, op{do: release, target: t}); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

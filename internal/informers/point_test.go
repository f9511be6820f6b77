package informers

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestSelection verifies that the number of a selection changes if objects are selected or
// deselected without a notification, or if informers forget states.
func TestSelection(t *testing.T) {
	r := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	for name, change := range map[string]func(*bench){
		"the labels of a namespace change": func(b *bench) { b.namespaces.Put("default", nil) },
		"the checkpoint is loaded again":   func(b *bench) { b.EnqueueAll() },
		"another object refers to one":     func(b *bench) { b.watched.followed = true; referring{b.Set}.ReferencesChanging(r.GroupResource()) },
		"the informers stop":               func(b *bench) { close(b.watched.stopped); b.stop([]*watched{b.watched}) },
		"an informer is dropped": func(b *bench) {
			former, err := b.newInformer(b.watched, "default")
			if err != nil {
				t.Fatal(err)
			}
			former.cancel = func() { close(former.stopped) }
			b.drop(b.watched, former)
		},
		"an informer lists for the second time": func(b *bench) { b.forgetUnlisted(b.watched, b.watched.informers.All()[""]) },
		"an informer starts": func(b *bench) {
			var running sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			b.watched.informers.Change(func(m map[string]*informer) { clear(m) })
			b.align(ctx, b.watched, &running)
			cancel()
			running.Wait()
		},
		"the cache loses an object": func(b *bench) {
			b.onDelete(b.watched.informers.All()[""], cache.DeletedFinalStateUnknown{Key: "default/web"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{}, r)
			before := b.Selection(r.GroupResource())
			change(b)
			if got := b.Selection(r.GroupResource()); got == before {
				t.Errorf("the selection is %d, as before", got)
			}
		})
	}
}

// TestDropKeepsWhatAnotherInformerReported verifies that dropping an informer of one namespace
// keeps the reports of the informer of all namespaces that replaces it. The new informer has reported
// an object that the bus lacks.
func TestDropKeepsWhatAnotherInformerReported(t *testing.T) {
	r := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	b := newBench(t, Config{}, r) // with an informer of all namespaces
	former, err := b.newInformer(b.watched, "default")
	if err != nil {
		t.Fatal(err)
	}
	former.cancel = func() {
		b.add(&event.Object{Namespace: "default", Name: "web", UID: "A", ResourceVersion: "5", Body: event.JSON([]byte(`{}`))})
		close(former.stopped)
	}
	b.drop(b.watched, former)
	if p := (ledger.Point{Mark: b.ledger.Mark(r.GroupResource())}); b.Reached(p) {
		t.Error("a point is reached, and the bus lacks the object")
	}
	if n := b.ledger.DirtyLen(); n != 1 {
		t.Errorf("%d keys are dirty, want 1", n)
	}
}

// TestAFormerInformerForgetsNothing verifies that an informer that was dropped right after its first list
// keeps the reports of the informer that replaces it.
func TestAFormerInformerForgetsNothing(t *testing.T) {
	b := newBench(t, Config{}, testResource) // with an informer of all namespaces
	former, err := b.newInformer(b.watched, testKey.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	b.add(object("A", "5"))
	b.forgetUnlisted(b.watched, former)
	if !b.ledger.IsDirty(testKey) {
		t.Error("the bus lacks the object, and the report is forgotten")
	}
	b.forgetUnlisted(b.watched, b.watched.informers.All()[""])
	if !b.ledger.IsDirty(testKey) {
		t.Error("the report of an object that the informer shows is forgotten")
	}
}

// TestDropDiscardsThePointOfAState verifies that dropping an informer discards a consistency point that
// was taken during the drop, if the point waits for a state that the informer reported. Nothing
// publishes that state.
func TestDropDiscardsThePointOfAState(t *testing.T) {
	r := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: []string{"default"}}}, r)
	b.add(object("A", "5"))
	dropped := b.watched.informers.All()["default"]
	b.watched.informers.Change(func(m map[string]*informer) { delete(m, "default") })
	var point ledger.Point
	dropped.cancel = func() {
		point = ledger.Point{Mark: b.ledger.Mark(r.GroupResource()), Selection: b.Selection(r.GroupResource())}
		close(dropped.stopped)
	}
	b.drop(b.watched, dropped)
	if !b.Reached(point) {
		t.Fatal("the point still waits, so this test verifies nothing")
	}
	if b.Selection(r.GroupResource()) == point.Selection {
		t.Error("the point would be published")
	}
}

// TestShown verifies that only a selected object is shown.
func TestShown(t *testing.T) {
	r := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: []string{"default"}}}, r)
	unmatched := object("A", "6")
	unmatched.Unselected = true
	check := func(when, want string, reports uint64) {
		t.Helper()
		k := r.Key(unmatched.Namespace, unmatched.Name)
		if in, got := b.Interest(k), b.Shown(k); got != want || in.Reports != reports {
			t.Errorf("%s: got %q after %d reports, want %q after %d", when, got, in.Reports, want, reports)
		}
	}
	check("no object", "", 0)
	b.add(object("A", "5"))
	check("an object", "A", 1)
	b.update(unmatched)
	check("it stops matching", "", 2)
	b.update(object("A", "7"))
	check("it matches again", "A", 3)
}

// TestAnObjectThatReturnedUnreported verifies that the end of an informer forgets the delete of an
// object that the indexer shows again, although the handler has not been notified. Otherwise, the
// forwarder would publish the delete of an object that exists.
func TestAnObjectThatReturnedUnreported(t *testing.T) {
	r := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	for name, end := range map[string]func(b *bench, i *informer){
		"the informer is dropped": func(b *bench, i *informer) {
			b.watched.informers.Change(func(m map[string]*informer) { delete(m, "default") })
			i.cancel = func() { close(i.stopped) }
			b.drop(b.watched, i)
		},
		"the informers of the resource stop": func(b *bench, _ *informer) { close(b.watched.stopped); b.stop([]*watched{b.watched}) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: []string{"default"}}}, r)
			returned, gone := object("A", "6"), object("B", "5")
			gone.Name = "gone"
			for _, o := range []*event.Object{returned, gone} {
				b.add(o)
				b.delete(o) // for example, its labels no longer match
			}
			b.index(returned)
			end(b, b.informer(returned))
			if k := r.Key(returned.Namespace, returned.Name); b.ledger.HasTombstone(k) {
				t.Error("the object that returned counts as deleted")
			}
			if k := r.Key(gone.Namespace, gone.Name); !b.ledger.HasTombstone(k) {
				t.Error("the delete of the other object is forgotten")
			}
		})
	}
}

// TestDropEnqueuesAnUnansweredCreate verifies that dropping an informer enqueues the key of an
// unacknowledged create, because the key may have left the queue. The acknowledgement then discards the
// points that the bus has not reached, because no informer may report the delete of the object.
func TestDropEnqueuesAnUnansweredCreate(t *testing.T) {
	r := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: []string{"default"}}}, r)
	o := object("A", "5")
	b.add(o)
	k := r.Key(o.Namespace, o.Name)
	b.term.Unanswered(k, event.Acked{}, event.Acked{UID: "A", ResourceVersion: "5"}, &event.Change{Object: o}, b.Interest(k))
	dropped := b.watched.informers.All()["default"]
	b.watched.informers.Change(func(m map[string]*informer) { delete(m, "default") })
	dropped.cancel = func() { close(dropped.stopped) }
	b.takeEnqueued()
	b.drop(b.watched, dropped)
	if got := b.takeEnqueued(); !slices.Equal(got, []event.Key{k}) {
		t.Errorf("enqueued %v, want %v", got, k)
	}
	before := b.Selection(r.GroupResource())
	if b.Unreported(k); b.Selection(r.GroupResource()) == before {
		t.Error("a point that the bus has not reached would be published")
	}
}

// TestPointOfTwoInformers verifies that the point of two informers is the earlier of their versions.
func TestPointOfTwoInformers(t *testing.T) {
	r := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: []string{"a", "b"}}}, r)
	b.watched.firstSync.Finish(t.Context())
	b.sync()
	at := time.Unix(100, 0)
	for namespace, version := range map[string]string{"a": "9", "b": "12"} {
		i := b.watched.informers.All()[namespace]
		i.progress.List(0, true, true, at)
		at = at.Add(time.Second)
		i.shared.GetStore().Bookmark(version)
	}
	p, ok := b.Point(r.GroupResource())
	if !ok || p.Version != "9" || !p.AsOf.Equal(time.Unix(100, 0)) {
		t.Errorf("the point is %+v, %t; want version 9 at the earlier time", p, ok)
	}
}

// TestPointWhileAnInformerEnds verifies that a point isn't published if access to a namespace is denied, and
// its informer ends, while the point is taken. The other informers don't show the changes in that namespace.
func TestPointWhileAnInformerEnds(t *testing.T) {
	r := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: []string{"a", "b"}}}, r)
	b.watched.firstSync.Finish(t.Context())
	b.sync()
	for _, i := range b.watched.all() {
		i.progress.List(0, true, true, time.Now())
		i.shared.GetStore().Bookmark("9")
	}
	b.config.Now = func() time.Time { // during Point
		b.config.Now = time.Now
		b.deny(b.watched, map[string]error{"a": forbiddenError("pods", "")})
		b.replace(b.watched, []*informer{b.watched.informers.All()["a"]}, nil)
		return time.Now()
	}
	if p, ok := b.Point(r.GroupResource()); ok && p.Selection == b.Selection(r.GroupResource()) {
		t.Errorf("the point %+v would be published", p)
	}
	if b.watched.synced() {
		t.Error("the informer did not end, so this test verifies nothing")
	}
}

// TestPointsAtTheSameTime verifies that several goroutines can take points of a resource, as the
// resolver and every scrape of the metrics do. An earlier version locked the informers in random
// order. Two calls could then wait for each other forever, and the handlers of the resource with them.
func TestPointsAtTheSameTime(t *testing.T) {
	r := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: []string{"a", "b", "c", "d"}}}, r)
	b.watched.firstSync.Finish(t.Context())
	b.sync()
	yield := func() {
		for range 100 {
			runtime.Gosched()
		}
	}
	const callers = 4
	var done atomic.Int32
	for round := range int32(20) {
		all := b.watched.all()
		for _, i := range all {
			i.progress.Lock() // as a handler does, so that the callers meet
		}
		for range callers {
			go func() { b.Point(r.GroupResource()); done.Add(1) }() // does not end if the test fails
		}
		yield()
		for _, i := range all {
			i.progress.Unlock()
			yield()
		}
		poll.Holds(t, "every call returns", func() bool { return done.Load() == callers*(round+1) })
	}
}

// TestPointCountsTheObjectsAtItsVersion verifies that a point counts the objects at exactly its
// version. An object is created and deleted repeatedly, so that it exists at odd versions.
func TestPointCountsTheObjectsAtItsVersion(t *testing.T) {
	r := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	b := newBench(t, Config{}, r)
	b.watched.firstSync.Finish(t.Context())
	b.sync()
	i := b.watched.informers.All()[""]
	i.progress.List(0, true, true, time.Now())
	const changes = 20_000
	var watching sync.WaitGroup
	watching.Go(func() {
		for version := 1; version <= changes; version++ {
			o := &event.Object{Namespace: "default", Name: "web", UID: "A", ResourceVersion: fmt.Sprint(version), Body: event.JSON([]byte(`{}`))}
			show := watch.Added
			if version%2 == 0 {
				show = watch.Deleted
			}
			i.progress.Watched(watch.Event{Type: show, Object: o}, false, time.Now())
			if show == watch.Added {
				b.index(o)
			} else if err := i.shared.GetStore().Delete(o); err != nil {
				t.Error(err)
			}
			i.shared.GetStore().Bookmark(o.ResourceVersion)
			i.progress.Notified(o, true, time.Now(), func() {
				if show == watch.Added {
					b.onAdd(i, o, false)
				} else {
					b.onDelete(i, o)
				}
			})
		}
	})
	points := 0
	for last := ""; last != fmt.Sprint(changes); {
		p, ok := b.Point(r.GroupResource())
		if !ok {
			continue
		}
		points++
		last = p.Version
		if version, err := strconv.Atoi(p.Version); err != nil || p.Objects != version%2 {
			t.Fatalf("a point at version %s has %d objects", p.Version, p.Objects)
		}
	}
	watching.Wait()
	t.Logf("%d points", points)
}

// TestPointOfAFollowedResource verifies that a point of a resource that is selected by reference counts
// the referenced objects, that there is no point while the indexer is ahead of the handler, and
// that the next point at the same version counts no object again.
func TestPointOfAFollowedResource(t *testing.T) {
	resource := func(name string) event.Resource {
		return event.Resource{Group: "example.com", Version: "v1", Resource: name, Kind: name, Namespaced: true}
	}
	parts, gadgets := resource("parts"), resource("gadgets")
	b := newBench(t, Config{Follow: []string{"spec.ref"}}, gadgets)
	b.references.Learn(map[schema.GroupKind]event.Resource{{Group: "example.com", Kind: "parts"}: parts}, nil)
	followed := b.watch(t, parts, true)
	followed.firstSync.Finish(t.Context())
	i := followed.informers.All()[""]
	i.registration = syncedRegistration{}
	i.progress.List(0, true, true, time.Now())
	b.sync()
	gadget := object("G", "3")
	gadget.References = []event.Reference{{Group: "example.com", Kind: "parts", Name: "part-0"}, {Group: "example.com", Kind: "parts", Name: "part-1"}}
	b.index(gadget)
	b.references.Update(gadgets.Key(gadget.Namespace, gadget.Name))

	const created = 1000
	var last *event.Object
	for n := range created { // version 1 to 1000, and parts 0 and 1 are referenced
		o := object(fmt.Sprint("P", n), fmt.Sprint(n+1))
		o.Name = fmt.Sprint("part-", n)
		i.progress.Watched(watch.Event{Type: watch.Added, Object: o}, false, time.Now())
		_ = i.shared.GetStore().Add(o)
		if last != nil {
			i.progress.Notified(last, true, time.Now(), func() {})
		}
		last = o
	}
	i.shared.GetStore().Bookmark(last.ResourceVersion)
	if p, ok := b.Point(parts.GroupResource()); ok {
		t.Errorf("the handler is behind the indexer, and a point has %d objects at version %s", p.Objects, p.Version)
	}
	i.progress.Notified(last, true, time.Now(), func() {})
	p, ok := b.Point(parts.GroupResource())
	if !ok || p.Objects != 2 || p.Version != last.ResourceVersion {
		t.Errorf("the point is %+v, %t; want 2 objects at version %s", p, ok, last.ResourceVersion)
	}
	i.counted.objects = 7
	if p, ok := b.Point(parts.GroupResource()); !ok || p.Objects != 7 {
		t.Errorf("another point at the same version has %d objects, so they were counted again", p.Objects)
	}
	gadget.References = gadget.References[:1]
	b.references.Update(gadgets.Key(gadget.Namespace, gadget.Name))
	if p, ok := b.Point(parts.GroupResource()); !ok || p.Objects != 1 {
		t.Errorf("one reference less: %d objects, %t; want 1", p.Objects, ok)
	}
}

// TestNoPointBetweenTwoSelections verifies that a point that counts with the new labels of a namespace does not
// have the number of the former selection. Otherwise it is published although the bus lacks the objects.
func TestNoPointBetweenTwoSelections(t *testing.T) {
	r := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Selector: selector(t, "sync=yes")}}, r)
	b.namespaces.Synced()
	b.watched.firstSync.Finish(t.Context())
	b.sync()
	b.watched.informers.All()[""].progress.List(0, true, true, time.Now())
	b.index(object("A", "5"))
	b.watched.informers.All()[""].count.Change(nil, object("A", "5"))
	before := b.Selection(r.GroupResource())
	b.namespaces.Put("default", map[string]string{"sync": "yes"}) // the resource is not told yet
	if n := b.len(b.watched); n != 1 || b.Selection(r.GroupResource()) == before {
		t.Errorf("%d objects are selected, and the selection is %d, before %d", n, b.Selection(r.GroupResource()), before)
	}
	before = b.Selection(r.GroupResource())
	b.namespaces.Remove("default")
	if n := b.len(b.watched); n != 0 || b.Selection(r.GroupResource()) == before {
		t.Errorf("%d objects are selected, and the selection is %d, before %d", n, b.Selection(r.GroupResource()), before)
	}
}

// TestNoPointBetweenTwoReferences verifies the same for an object that refers to objects of two resources.
func TestNoPointBetweenTwoReferences(t *testing.T) {
	resource := func(name string) event.Resource {
		return event.Resource{Group: "example.com", Version: "v1", Resource: name, Kind: name, Namespaced: true}
	}
	parts, tools, gadgets := resource("parts"), resource("tools"), resource("gadgets")
	b := newBench(t, Config{Follow: []string{"spec.ref"}, Standby: true}, gadgets)
	b.references.Learn(map[schema.GroupKind]event.Resource{{Group: "example.com", Kind: "parts"}: parts, {Group: "example.com", Kind: "tools"}: tools}, nil)
	b.watch(t, parts, true).joined.Store(true)
	b.watch(t, tools, true).joined.Store(true)
	tool := tools.Key("default", "other")
	before := b.Selection(tools.GroupResource())
	b.config.Enqueue = func(k event.Key) { // with the part, before the tool
		if b.selects(tool) && b.Selection(tools.GroupResource()) == before {
			t.Errorf("at %v, the tool is selected, and its selection is as before", k)
		}
	}
	gadget := object("G", "3")
	gadget.References = []event.Reference{{Group: "example.com", Kind: "parts", Name: "other"}, {Group: "example.com", Kind: "tools", Name: "other"}}
	b.index(gadget)
	b.references.Update(gadgets.Key(gadget.Namespace, gadget.Name))
	if !b.selects(tool) || b.Selection(tools.GroupResource()) == before {
		t.Error("the tool is not selected")
	}
}

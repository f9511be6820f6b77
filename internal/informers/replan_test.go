package informers

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/discovery/survey"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/references"
	"github.com/kuberelay/kuberelay/test/lab/discoverytest"
)

// TestReferencesAreIncompleteDuringARestart verifies that no object counts as unreferenced while a
// resource that may refer to it is restarted and another resource syncs. An earlier version considered only
// restarts in another version, and deselected objects during a restart in another epoch.
func TestReferencesAreIncompleteDuringARestart(t *testing.T) {
	t.Run("version", func(t *testing.T) { testReferencesDuringARestart(t, false) })
	t.Run("epoch", func(t *testing.T) { testReferencesDuringARestart(t, true) })
}

func testReferencesDuringARestart(t *testing.T, epoch bool) {
	resource := func(name, version string) event.Resource {
		return event.Resource{Group: "example.com", Version: version, Resource: name, Kind: name, Namespaced: true}
	}
	parts, gadgets, widgets := resource("parts", "v1"), resource("gadgets", "v1"), resource("widgets", "v1")
	b := newBench(t, Config{Follow: []string{"spec.ref"}, Discovered: func() {}}, gadgets)
	b.references.Learn(map[schema.GroupKind]event.Resource{{Group: "example.com", Kind: "parts"}: parts}, nil)
	restarted := b.watch(t, widgets, false) // not listed yet
	b.sync()
	followed := b.watch(t, parts, true)
	followed.informers.All()[""].registration = syncedRegistration{}
	part := object("A", "7")
	_ = followed.informers.All()[""].shared.GetStore().Add(part)
	gadget := object("G", "3")
	gadget.References = []event.Reference{{Group: "example.com", Kind: "parts", Name: "other"}}
	b.index(gadget)
	answer := func(widgets event.Resource) *survey.Answer {
		return &survey.Answer{
			Catalog: &discovery.Catalog{}, Resolution: discovery.Resolution{Watch: []event.Resource{gadgets, widgets}},
			Followable: map[schema.GroupKind]event.Resource{{Group: "example.com", Kind: "parts"}: parts},
		}
	}
	b.answer = answer(widgets)
	b.updateReferences(b.watched, b.watched.informers.All()[""])
	k := parts.Key(part.Namespace, part.Name)
	restarted.cancel = func() { // while apply waits for the informers of widgets, those of gadgets sync
		b.updateReferences(b.watched, b.watched.informers.All()[""])
		if v := b.Lookup(k); b.references.IsComplete() || len(v.Tombstones) > 0 {
			t.Errorf("complete: %t, tombstones: %+v", b.references.IsComplete(), v.Tombstones)
		}
		close(restarted.stopped)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if epoch {
		b.RaiseEpoch(widgets.GroupResource(), 1)
		b.startDueEpochs(ctx)
	} else {
		b.apply(ctx, answer(resource("widgets", "v2")))
	}
	is := b.watchedFor(widgets.GroupResource())
	if <-is.stopped; is == restarted {
		t.Error("not restarted")
	}
}

// TestReplan verifies which informers a discovery starts, stops, and restarts. The informers of a group
// whose discovery failed stay unchanged.
func TestReplan(t *testing.T) {
	cluster, rescoped := discoverytest.Cluster(), discoverytest.Cluster()
	fish := &rescoped.Versions[len(rescoped.Versions)-1].APIResources[1]
	fish.Namespaced = false

	for name, c := range map[string]struct {
		before, after        discoverytest.Discovery
		gone, stale, started string
	}{
		"as before":                     {cluster, cluster, "", "", ""},
		"a resource goes":               {cluster, cluster.Without("apps/v1beta1"), "scrolls", "", ""},
		"a resource comes":              {cluster.Without("apps/v1beta1"), cluster, "", "", "scrolls"},
		"a version goes":                {cluster, cluster.Without("example.com/v1"), "", "widgets", "widgets"},
		"a better version comes":        {cluster.Without("example.com/v1"), cluster, "", "widgets", "widgets"},
		"a scope changes":               {cluster, rescoped, "", "fish", "fish"},
		"a group fails":                 {cluster, cluster.Failing("example.org/v2"), "", "", ""},
		"the preferred version fails":   {cluster, cluster.Failing("example.com/v1"), "", "", ""},
		"the only version of one fails": {cluster, cluster.Failing("apps/v1beta1"), "", "", ""},
		"the preferred version is back": {cluster.Failing("example.com/v1"), cluster, "", "widgets", "widgets"},
		"what is there of a failed group": {cluster.Without("example.com/v1").Without("example.com/v1alpha1"),
			cluster.Failing("example.com/v1"), "", "", "widgets"},
	} {
		t.Run(name, func(t *testing.T) {
			selection := discovery.Selection{Include: []string{"widgets.example.com", "fish", "*.apps"}}
			s := &Set{references: references.New(nil, nil)}
			for _, r := range selection.Resolve(mustDiscover(t, c.before)).Watch {
				s.watched.Put(r.GroupResource(), &watched{resource: r})
			}
			after := mustDiscover(t, c.after)
			gone, stale, started := s.replan(&survey.Answer{Catalog: after, Resolution: selection.Resolve(after)})

			names := func(all []*watched) (s []string) {
				for _, w := range all {
					s = append(s, w.resource.Resource)
				}
				return s
			}
			var starting []string
			for _, r := range started {
				starting = append(starting, r.Resource.Resource)
			}
			for what, got := range map[string][2]string{
				"gone":     {strings.Join(names(gone), " "), c.gone},
				"stale":    {strings.Join(names(stale), " "), c.stale},
				"starting": {strings.Join(starting, " "), c.started},
			} {
				if got[0] != got[1] {
					t.Errorf("%s: got %q, want %q", what, got[0], got[1])
				}
			}
			for _, name := range append(names(gone), names(stale)...) {
				for gr := range s.watched.All() {
					if gr.Resource == name {
						t.Errorf("%s is still watched", name)
					}
				}
			}
		})
	}
}

func mustDiscover(t *testing.T, stub discoverytest.Discovery) *discovery.Catalog {
	t.Helper()
	c, _, err := discovery.Discover(t.Context(), stub, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRedefinedDuringARestart verifies that a resource that a changed definition moves to another version is
// listed again later. The API server may serve the first list from the former definition, and the
// notification of the change reaches only the informers that end.
func TestRedefinedDuringARestart(t *testing.T) {
	widgets := event.Resource{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true}
	b := newBench(t, Config{Discovered: func() {}}, widgets)
	b.answer = &survey.Answer{Catalog: &discovery.Catalog{}}
	b.redefined(discovery.Redefinition{Group: widgets.Group, Resource: widgets.Resource})
	close(b.watched.stopped)
	widgets.Version = "v2"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.apply(ctx, &survey.Answer{Catalog: &discovery.Catalog{}, Resolution: discovery.Resolution{Watch: []event.Resource{widgets}}})
	is := b.watchedFor(widgets.GroupResource())
	if <-is.stopped; is == b.watched || len(is.redefined) != 1 {
		t.Errorf("restarted: %t, lists to come: %d; want 1", is != b.watched, len(is.redefined))
	}
}

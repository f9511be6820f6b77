package reconcile

import (
	"context"
	"errors"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// views is a bench whose informers return a view for each key.
type views struct {
	*bench
	of map[event.Key]ObjectView
}

func (v views) DescribeObject(k event.Key) ObjectView { return v.of[k] }

// TestOneObjectDoesNotBlockTheOthers verifies that an object that can't be read, or that the watch has
// not reached, does not delay the decisions about objects in removed namespaces and about objects
// that are no longer selected. Before the fix, the comparison ended after the failed read.
func TestOneObjectDoesNotBlockTheOthers(t *testing.T) {
	object, removed, leaving := testResource.Key("a", "web"), testResource.Key("b", "web"), testResource.Key("c", "web")
	for name, forbidden := range map[string]bool{"forbidden": true, "behind": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, stubCluster{get: func(gvr schema.GroupVersionResource, _, name string) (*unstructured.Unstructured, error) {
				if gvr.Resource == testKey.Resource && forbidden {
					return nil, forbiddenError(gvr.Resource, name)
				}
				return nil, notFound()
			}, list: func(gvr schema.GroupVersionResource, _ string, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
				if gvr.Resource == "namespaces" && o.FieldSelector == "metadata.name=a" {
					return existing(), nil
				}
				list := &unstructured.UnstructuredList{}
				list.SetResourceVersion("100")
				return list, nil
			}})
			inRemoved, unselected, late := b.object, b.object, b.object
			late.Version, inRemoved.NamespaceExists, unselected.Selected, unselected.PublishDeselected = "4", false, false, true
			b.Informers = views{b, map[event.Key]ObjectView{object: late, removed: inRemoved, leaving: unselected}}
			_, err := b.Confirm(t.Context(), testResource.GroupResource(), acked(map[event.Key]event.Acked{
				object: live("A", "50"), removed: live("B", "2"), leaving: live("C", "2"),
			}))
			if err == nil || len(b.tombstones[object]) > 0 {
				t.Errorf("got %v and %d tombstones of the object that blocks", err, len(b.tombstones[object]))
			}
			if len(b.tombstones[removed]) != 1 || len(b.tombstones[leaving]) != 1 {
				t.Errorf("%d tombstones in the removed namespace and %d of the object that is no longer selected, want one each", len(b.tombstones[removed]), len(b.tombstones[leaving]))
			}
		})
	}
}

// TestAnObjectThatIsRefusedDoesNotBlockTheOthers verifies that the reads of other objects continue
// after the API server refused to return one.
func TestAnObjectThatIsRefusedDoesNotBlockTheOthers(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		reads int
	}{
		"forbidden":         {forbiddenError("configmaps", "web"), 2},
		"a webhook fails":   {apierrors.NewInternalError(errors.New("conversion webhook failed")), 2},
		"too many requests": {apierrors.NewTooManyRequests("later", 1), 1},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			b := newBench(t, stubCluster{get: func(_ schema.GroupVersionResource, namespace, _ string) (*unstructured.Unstructured, error) {
				if reads++; namespace == "a" {
					return nil, c.err
				}
				return nil, notFound()
			}})
			b.Each = inTurn
			refused, gone := testResource.Key("a", "web"), testResource.Key("b", "web")
			_, err := b.Confirm(t.Context(), testResource.GroupResource(), func(yield func(event.Key, event.Acked) bool) {
				_ = yield(refused, live("A", "5")) && yield(gone, live("B", "5"))
			})
			if !errors.Is(err, c.err) || reads != c.reads || len(b.tombstones[gone]) != c.reads-1 {
				t.Errorf("got %v after %d reads and %d tombstones, want %d reads", err, reads, len(b.tombstones[gone]), c.reads)
			}
		})
	}
}

// TestRefusedInARemovedNamespace verifies that objects count as gone if the API server refuses to return
// them and their namespace is gone. The Role that granted access to them can be in that namespace.
func TestRefusedInARemovedNamespace(t *testing.T) {
	for name, c := range map[string]struct {
		acked  event.Acked
		exists bool
		want   Comparison
		err    bool
	}{
		"removed":                   {live("A", "5"), false, Comparison{Deleted: 2}, false},
		"removed, a foreign event":  {foreign(live("A", "5")), false, Comparison{Deleted: 2}, false},
		"removed, a foreign delete": {foreign(deleted("A", "5")), false, Comparison{Outlived: 2}, false},
		"it exists":                 {live("A", "5"), true, Comparison{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			lists := 0
			b := newBench(t, stubCluster{
				get: func(schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
					return nil, forbiddenError("configmaps", "web")
				},
				list: func(gvr schema.GroupVersionResource, _ string, _ metav1.ListOptions) (*unstructured.UnstructuredList, error) {
					if gvr.Resource != "namespaces" {
						return nil, forbiddenError("configmaps", "")
					}
					if lists++; c.exists {
						return existing(), nil
					}
					return &unstructured.UnstructuredList{}, nil
				},
			})
			b.Each = inTurn
			other := testResource.Key(testKey.Namespace, "other")
			got, err := b.Confirm(t.Context(), testResource.GroupResource(), acked(map[event.Key]event.Acked{testKey: c.acked, other: c.acked}))
			if got != c.want || apierrors.IsForbidden(err) != c.err || lists != 1 {
				t.Errorf("got %+v, %v after %d lists; want %+v", got, err, lists, c.want)
			}
		})
	}
}

// TestReadsEndWithoutEtcd verifies that a comparison does not read every object if the API server responds
// with an internal error to each read, as it does without etcd.
func TestReadsEndWithoutEtcd(t *testing.T) {
	reads, failed := 0, apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	b := newBench(t, stubCluster{get: func(schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
		reads++
		return nil, failed
	}})
	b.Each = inTurn
	all := map[event.Key]event.Acked{}
	for n := range 3 * maxFailed {
		all[testResource.Key("default", strconv.Itoa(n))] = live("A", "5")
	}
	if _, err := b.Confirm(t.Context(), testResource.GroupResource(), acked(all)); !errors.Is(err, failed) || reads != maxFailed {
		t.Errorf("got %v after %d reads, want %d", err, reads, maxFailed)
	}
}

// inTurn is [Config.Each] without concurrency.
func inTurn(ctx context.Context, n int, read func(context.Context, int) error) error {
	for i := range n {
		if err := read(ctx, i); err != nil {
			return err
		}
	}
	return nil
}
